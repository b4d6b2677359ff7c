"""The part of a layer in which each row is by itself, as one function that all layers share.

On a GPU such a part is a dozen small kernels; compiled (`torch.compile`), it is a few. The parts come in as arguments,
so that one compiled function serves all layers, and the number of rows is left open, so that it serves all batches.
Compiling takes some tens of seconds at the first batch, more than a whole training run on a small LM: it is asked for
(`--compiled`), never taken for granted.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Part = Callable[[Tensor], Tensor]
PostNormTail = Callable[[Part, Part, Part, Part, Tensor], Tensor]
PreNormTail = Callable[[Part, Part, Tensor], Tensor]


def post_norm_tail(widen: Part, activation: Part, narrow: Part, norm: Part, rows: Tensor) -> Tensor:
    """Normalises behind: BERT, BART."""
    return norm(narrow(activation(widen(rows))) + rows)


def pre_norm_tail(norm: Part, feed: Part, rows: Tensor) -> Tensor:
    """Normalises before: Llama, GPT-2."""
    return rows + feed(norm(rows))


class Tails:
    """Both kinds, as they are or compiled."""

    def __init__(self, *, compiled: bool = False, backend: str | Callable[..., Any] = "inductor") -> None:
        self.post_norm: PostNormTail = post_norm_tail
        self.pre_norm: PreNormTail = pre_norm_tail
        if compiled:
            self.post_norm = torch.compile(post_norm_tail, dynamic=True, backend=backend)
            self.pre_norm = torch.compile(pre_norm_tail, dynamic=True, backend=backend)
