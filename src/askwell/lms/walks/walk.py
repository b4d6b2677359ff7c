"""What a walk is, and the parts that all walks share: attention, feed-forward blocks, prompt vectors and deltas."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from askwell.lms.walks.attention import Group, attend
from askwell.lms.walks.past import KeysAndValues
from askwell.lms.walks.rows import PackedBatch, Rows

Deltas = Mapping[str, Sequence[Float[Tensor, "prompt_tokens hidden"]]] | None
"""What is added as each layer of each stack is left, [prompt tokens, hidden]."""


@dataclass(frozen=True)
class Walk:
    """The way through a model, from packed word vectors to logits at the rows that are read."""

    hidden: Callable[[PackedBatch, Mapping[str, Tensor], Deltas], Tensor]
    """From each stack's word vectors to what the output embedding reads, [reads, width]."""
    output: Tensor
    """The output embedding, [vocabulary, width]."""
    bias: Tensor | None
    """What is added to the logits."""
    cap: float | None = None
    """The bound on logits, applied by a hyperbolic tangent, as in Gemma 2."""


@dataclass(frozen=True)
class Attention:
    """The parts of a public attention module, under the same names for all architectures."""

    query: Callable[[Tensor], Tensor]
    key: Callable[[Tensor], Tensor]
    value: Callable[[Tensor], Tensor]
    out: Callable[[Tensor], Tensor]
    head_size: int
    scale: float

    def __call__(
        self,
        from_rows: Float[Tensor, "queries width"],
        to_rows: Float[Tensor, "keys width"],
        groups: Sequence[Group],
        seen: Callable[[Tensor, Tensor], KeysAndValues] | None = None,
    ) -> Float[Tensor, "queries width"]:
        """Return the output of attention from some rows (queries) to others (keys); `seen` turns the keys and values of
        these into all that are attended to."""
        query, key, value = self.query(from_rows), self.key(to_rows), self.value(to_rows)
        if seen is not None:
            key, value = seen(key, value)
        return self.out(attend(query, key, value, groups, self.head_size, self.scale))

    def to_kept(
        self, from_rows: Float[Tensor, "queries width"], kept: KeysAndValues, groups: Sequence[Group]
    ) -> Float[Tensor, "queries width"]:
        """Return the output of attention from some rows to keys and values that were kept."""
        return self.out(attend(self.query(from_rows), *kept, groups, self.head_size, self.scale))


def insert_prompt_vectors(
    words: Float[Tensor, "rows embedding"], rows: Rows, vectors: Float[Tensor, "prompt_tokens embedding"]
) -> Float[Tensor, "rows embedding"]:
    """Return the word vectors with the tuned ones at the prompt tokens."""
    return words.index_copy_(0, rows.tuned, _chosen(vectors, rows).to(words.dtype))


def perturb(hidden: Float[Tensor, "rows hidden"], rows: Rows, deltas: Deltas, stack: str, layer: int) -> Tensor:
    """Return the hidden states as they leave a layer, with its delta at the prompt tokens alone."""
    if deltas is None or not len(rows.tuned):
        return hidden
    return hidden.index_add_(0, rows.tuned, _chosen(deltas[stack][layer], rows).to(hidden.dtype))


def as_sequence(module: Any, rows: Tensor, **arguments: Any) -> Tensor:
    """Return the output of a public module that takes [sequences, tokens, width], for rows taken as one sequence."""
    return module(inputs_embeds=rows.unsqueeze(0), **arguments)[0]


def rows_at(hidden: Tensor, at: Tensor) -> Tensor:
    """Return the rows at these places."""
    return torch.index_select(hidden, 0, at)


def _chosen(table: Tensor, rows: Rows) -> Tensor:
    return functional.embedding(rows.prompt_tokens, table)


Part = Callable[[Tensor], Tensor]
PostNormFeedForward = Callable[[Part, Part, Part, Part, Tensor], Tensor]
PreNormFeedForward = Callable[[Part, Part, Tensor], Tensor]


def _post_norm(up: Part, activation: Part, down: Part, norm: Part, rows: Tensor) -> Tensor:
    return norm(down(activation(up(rows))) + rows)


def _pre_norm(norm: Part, mlp: Part, rows: Tensor) -> Tensor:
    return rows + mlp(norm(rows))


class FeedForward:
    """The feed-forward block of a layer with its residual and normalisation, compiled or not.

    On a GPU such a block is a dozen small kernels; compiled (`torch.compile`), it is a few. Its modules are arguments,
    so that one compiled function serves all layers, and the number of rows is left open, so that it serves all
    batches. Compiling takes some tens of seconds at the first batch, more than a whole training run on a small LM, so
    it is never the default (`--compiled`).
    """

    def __init__(self, *, compiled: bool = False, backend: str | Callable[..., Any] = "inductor") -> None:
        self.is_compiled = compiled
        self.post_norm: PostNormFeedForward = _post_norm
        """Normalised after the residual: BERT, BART."""
        self.pre_norm: PreNormFeedForward = _pre_norm
        """Normalised before: Llama, GPT-2."""
        if compiled:
            self.post_norm = torch.compile(_post_norm, dynamic=True, backend=backend)
            self.pre_norm = torch.compile(_pre_norm, dynamic=True, backend=backend)
