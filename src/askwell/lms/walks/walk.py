"""What a walk is, and the steps that all walks share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from askwell.lms.walks.attention import attend
from askwell.lms.walks.rows import PackedBatch, Rows, Run

Deltas = Mapping[str, Sequence[Tensor]] | None
"""What is added as each layer of each stack is left, [prompt tokens, hidden]."""


@dataclass(frozen=True)
class Walk:
    """How a model comes from packed word vectors to logits at the rows that are read."""

    hidden: Callable[[PackedBatch, Mapping[str, Tensor], Deltas], Tensor]
    """From each stack's word vectors to what the output embedding reads, [reads, width]."""
    output: Tensor
    """The output embedding, [vocabulary, width]."""
    bias: Tensor | None
    """What is added to the logits."""


@dataclass(frozen=True)
class Attention:
    """The parts of a public attention module, under one name for all makes."""

    query: Callable[[Tensor], Tensor]
    key: Callable[[Tensor], Tensor]
    value: Callable[[Tensor], Tensor]
    out: Callable[[Tensor], Tensor]
    head_size: int
    scale: float

    def __call__(
        self, asking: Float[Tensor, "asking width"], asked: Float[Tensor, "asked width"], runs: Sequence[Run]
    ) -> Float[Tensor, "asking width"]:
        """What the asking rows get from the asked ones."""
        query, key, value = self.query(asking), self.key(asked), self.value(asked)
        return self.out(attend(query, key, value, runs, self.head_size, self.scale))


def put_in(
    words: Float[Tensor, "rows embedding"], rows: Rows, vectors: Float[Tensor, "prompt_tokens embedding"]
) -> Float[Tensor, "rows embedding"]:
    """The word vectors with the tuned ones at the prompt tokens."""
    return words.index_copy_(0, rows.tuned, _chosen(vectors, rows).to(words.dtype))


def perturb(hidden: Float[Tensor, "rows hidden"], rows: Rows, deltas: Deltas, stack: str, layer: int) -> Tensor:
    """The hidden states as they leave a layer, with its delta at the prompt tokens alone."""
    if deltas is None or not len(rows.tuned):
        return hidden
    return hidden.index_add_(0, rows.tuned, _chosen(deltas[stack][layer], rows).to(hidden.dtype))


def as_sentence(module: Any, rows: Tensor, **arguments: Any) -> Tensor:
    """What a public module that takes [sentences, tokens, width] makes of rows."""
    return module(inputs_embeds=rows.unsqueeze(0), **arguments)[0]


def _chosen(table: Tensor, rows: Rows) -> Tensor:
    return functional.embedding(rows.prompt_tokens, table)


def rows_at(hidden: Tensor, at: Tensor) -> Tensor:
    """The rows at these places."""
    return torch.index_select(hidden, 0, at)
