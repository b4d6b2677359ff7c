"""The way through a stack of layers, shared by all architectures: they differ in the parts of their layers alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from askwell.lms.walks.attention import Group, attend, groups_of
from askwell.lms.walks.output import Head
from askwell.lms.walks.past import KeysAndValues
from askwell.lms.walks.walk import Deltas, PackedBatch, Walk, perturb, rows_at

Part = Callable[[Tensor], Tensor]
Projected = tuple[Tensor, Tensor, Tensor]
"""Queries, keys and values."""
Rotary = tuple[Tensor, Tensor]
"""Cosines and sines of the rows' positions, [rows, 1, rotated part of a head]."""


@dataclass(frozen=True)
class Layer:
    """The parts of a layer, under the same names for all architectures."""

    project: Callable[[Tensor, Tensor], Projected]
    """From the rows that attend and those that are attended to."""
    out: Part
    """The output projection of attention, and the norm after it, if there is one."""
    finish: Callable[[Tensor, Tensor], Tensor]
    """From the layer's rows and what they have attended to, to the rows as they leave the layer."""
    head_size: int
    scale: float
    norm: Part | None = None
    """The norm before attention; None if there is none."""
    cap: float | None = None
    rotary: str = ""
    """Which rotary embedding it uses, if there are several."""

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        groups: Sequence[Group],
        turns: tuple[Rotary, Rotary] | None = None,
        seen: Callable[[Tensor, Tensor], KeysAndValues] | None = None,
    ) -> Tensor:
        """Return what some rows attend to among others, both normalised; `seen` turns the keys and values of these into
        all that are attended to."""
        query, key, value = self.project(queries, keys)
        if turns is not None:
            query, key = _rotate(query, turns[0], self.head_size), _rotate(key, turns[1], self.head_size)
        if seen is not None:
            key, value = seen(key, value)
        return self.out(attend(query, key, value, groups, self.head_size, self.scale, self.cap))


def walk_layers(
    layers: Sequence[Layer],
    embed: Callable[[Tensor, Tensor], Tensor],
    before_output: Part,
    output: Any,
    *,
    rotary: Any = None,
    causal: bool = True,
    cap: float | None = None,
) -> Walk:
    """Return the walk through some layers: in the last one, only the rows that are read attend to others."""
    kinds = {layer.rotary for layer in layers}

    def hidden(batch: PackedBatch, embedded: Mapping[str, Tensor], deltas: Deltas) -> Tensor:
        rows = query_rows = batch.streams["layers"]
        states = embed(embedded["layers"], rows.positions)
        key_turns = {} if rotary is None else {kind: _turn(rotary, states, rows.positions, kind) for kind in kinds}
        groups = groups_of(rows, batch.key_lengths, causal=causal)
        for number, layer in enumerate(layers):
            queries, normed = states, states if layer.norm is None else layer.norm(states)
            normed_queries, key_turn = normed, key_turns.get(layer.rotary)
            query_turn = key_turn
            if number == len(layers) - 1:
                queries = rows_at(states, batch.read_at)
                normed_queries = queries if layer.norm is None else rows_at(normed, batch.read_at)
                query_rows, groups = batch.reads, groups_of(batch.reads, batch.key_lengths, causal=causal)
                if rotary is not None:
                    query_turn = _turn(rotary, states, batch.reads.positions, layer.rotary)
            turns = None if query_turn is None or key_turn is None else (query_turn, key_turn)
            seen = partial(batch.memory.join, number) if causal else None
            attended = layer.attend(normed_queries, normed, groups, turns, seen)
            states = perturb(layer.finish(queries, attended), query_rows, deltas, "layers", number)
        return before_output(states)

    return Walk(hidden, Head(output.weight, output.bias, cap))


def _turn(rotary: Any, like: Tensor, positions: Tensor, kind: str) -> Rotary:
    """Return a model's rotary embeddings; in some, layers with a window have another base than those without."""
    cos, sin = rotary(like, positions.unsqueeze(0), *([kind] if kind else []))
    return cos[0].unsqueeze(1), sin[0].unsqueeze(1)


def _rotate(rows: Tensor, rotary: Rotary, head_size: int) -> Tensor:
    """Return queries or keys with their rotary embedding, on the first part of each head if it is for a part."""
    cos, sin = rotary
    by_head, rotated = rows.view(rows.shape[0], -1, head_size), cos.shape[-1]
    turned = _Rotate.apply(by_head[..., :rotated], cos, sin)
    if rotated < head_size:
        turned = torch.cat((turned, by_head[..., rotated:]), dim=-1)
    return turned.to(rows.dtype).view_as(rows)


class _Rotate(torch.autograd.Function):
    """Each number of the first half of a head is turned together with that of the second half."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        turned, half = x * cos, x.shape[-1] // 2
        turned[..., :half].addcmul_(x[..., half:], sin[..., :half].to(turned.dtype), value=-1)
        turned[..., half:].addcmul_(x[..., :half], sin[..., half:].to(turned.dtype))
        return turned

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (cos, sin), gradient = ctx.saved_tensors, gradients[0]
        turned, half = gradient * cos, gradient.shape[-1] // 2
        turned[..., :half].addcmul_(gradient[..., half:], sin[..., half:].to(turned.dtype))
        turned[..., half:].addcmul_(gradient[..., :half], sin[..., :half].to(turned.dtype), value=-1)
        return turned, None, None


# ── queries, keys and values ──────────────────────────────────────────────────────────────────────────────────────


def apart(
    query: Part, key: Part, value: Part, query_norm: Part | None = None, key_norm: Part | None = None
) -> Callable[[Tensor, Tensor], Projected]:
    """Return what separate projections give."""

    def project(from_rows: Tensor, to_rows: Tensor) -> Projected:
        queries, keys = query(from_rows), key(to_rows)
        queries = queries if query_norm is None else query_norm(queries)
        keys = keys if key_norm is None else key_norm(keys)
        return queries, keys, value(to_rows)

    return project


def stacked(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor, Tensor], Projected]:
    """Return what one projection gives that has the queries' rows first, then the keys' and then the values'."""
    biases = (None, None, None) if bias is None else bias.chunk(3)
    parts = zip(weight.chunk(3), biases, strict=True)
    return apart(*(partial(functional.linear, weight=own, bias=added) for own, added in parts))


def interleaved(module: Any, head_size: int) -> Callable[[Tensor, Tensor], Projected]:
    """Return what one projection gives, with query, key and value head by head, as GPT-NeoX's does."""

    def split(rows: Tensor) -> Projected:
        query, key, value = module(rows).view(rows.shape[0], -1, 3, head_size).unbind(2)
        width = query.shape[1] * head_size
        return query.reshape(-1, width), key.reshape(-1, width), value.reshape(-1, width)

    def project(from_rows: Tensor, to_rows: Tensor) -> Projected:
        queries, keys, values = split(to_rows)
        return (queries if from_rows is to_rows else split(from_rows)[0]), keys, values

    return project


# ── feed-forward blocks ───────────────────────────────────────────────────────────────────────────────────────────


def _after_residual(up: Part, activation: Part, down: Part, norm: Part, rows: Tensor) -> Tensor:
    return norm(down(activation(up(rows))) + rows)


def _before_residual(norm: Part, mlp: Part, rows: Tensor) -> Tensor:
    return rows + mlp(norm(rows))


class FeedForward:
    """The feed-forward block of a layer with its residual and normalisation, compiled or not.

    On a GPU such a block is a dozen small kernels; compiled (`torch.compile`), it is a few. Its modules are arguments,
    so that one compiled function serves all layers, and the number of rows is left open, so that it serves all
    batches. Compiling takes some tens of seconds at the first batch, more than a whole training run on a small LM, so
    it is never the default (`--compiled`).
    """

    def __init__(self, *, compiled: bool = False, backend: str | Callable[..., Any] = "inductor") -> None:
        self.post_norm: Callable[[Part, Part, Part, Part, Tensor], Tensor] = _after_residual
        """Normalised after the residual: BERT, BART."""
        self.pre_norm: Callable[[Part, Part, Tensor], Tensor] = _before_residual
        """Normalised before: Llama, GPT-2."""
        if compiled:
            self.post_norm = torch.compile(_after_residual, dynamic=True, backend=backend)
            self.pre_norm = torch.compile(_before_residual, dynamic=True, backend=backend)

    def finish_pre_norm(self, norm: Part, mlp: Part, *, parallel: bool = False) -> Callable[[Tensor, Tensor], Tensor]:
        """Return how a pre-norm layer ends; in parallel, its feed-forward block reads the layer's input."""

        def finish(rows: Tensor, attended: Tensor) -> Tensor:
            if parallel:
                return self.pre_norm(norm, mlp, rows) + attended
            return self.pre_norm(norm, mlp, rows + attended)

        return finish

    def finish_post_norm(
        self, attention_norm: Part, up: Part, activation: Part, down: Part, norm: Part
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """Return how a post-norm layer ends."""
        return lambda rows, attended: self.post_norm(up, activation, down, norm, attention_norm(attended + rows))
