"""Attention over packed rows: each run of pairs of equal lengths by itself, so that nothing is padded or masked out.

The part of a layer in which each row is by itself, as one function that all layers share.

On a GPU such a part is a dozen small kernels; compiled (`torch.compile`), it is a few. The parts come in as arguments,
so that one compiled function serves all layers, and the number of rows is left open, so that it serves all batches.
Compiling takes some tens of seconds at the first batch, more than a whole training run on a small LM: it is asked for
(`--compiled`), never taken for granted.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from askwell.lms.walks.rows import Run


def attend(
    queries: Float[Tensor, "asking width"],
    keys: Float[Tensor, "asked key_width"],
    values: Float[Tensor, "asked key_width"],
    runs: Sequence[Run],
    head_size: int,
    scale: float,
) -> Float[Tensor, "asking width"]:
    """What each query's row gets from the rows of its pair. Fewer key than query heads are shared by equal groups."""
    by_products = queries.device.type == "cpu"
    return (_Attend.apply if by_products else attend_fused)(queries, keys, values, runs, head_size, scale)


def attend_fused(
    queries: Tensor, keys: Tensor, values: Tensor, runs: Sequence[Run], head_size: int, scale: float
) -> Tensor:
    """The same by torch's fused attention, for devices whose kernels like short sentences, too."""
    parts = []
    for run, query, key, value in zip(
        runs,
        queries.split([run.pairs * run.queries for run in runs]),
        keys.split([run.pairs * run.keys for run in runs]),
        values.split([run.pairs * run.keys for run in runs]),
        strict=True,
    ):
        visible = run.visible if run.visible is None or run.visible.dim() == 4 else run.visible[None, None]
        attended = functional.scaled_dot_product_attention(
            query.view(run.pairs, run.queries, -1, head_size).transpose(1, 2),
            key.view(run.pairs, run.keys, -1, head_size).transpose(1, 2),
            value.view(run.pairs, run.keys, -1, head_size).transpose(1, 2),
            attn_mask=visible,
            scale=scale,
            enable_gqa=keys.shape[1] != queries.shape[1],
        )
        parts.append(attended.transpose(1, 2).reshape(run.pairs * run.queries, -1))
    return torch.cat(parts)


class _Attend(torch.autograd.Function):
    """Attention as batched products of small matrices: for sentences of some ten tokens a CPU does these faster than
    its fused kernel, which is made for long ones."""

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, runs: Sequence[Run], head_size: int, scale: float
    ) -> Tensor:
        key_heads = keys.shape[1] // head_size
        attended = queries.new_empty(queries.shape)
        saved: list[Tensor] = []
        query_row = key_row = 0
        for run in runs:
            query_end, key_end = query_row + run.pairs * run.queries, key_row + run.pairs * run.keys
            query = _by_head(queries[query_row:query_end], run.pairs, run.queries, key_heads, head_size)
            key = _by_head(keys[key_row:key_end], run.pairs, run.keys, key_heads, head_size)
            value = _by_head(values[key_row:key_end], run.pairs, run.keys, key_heads, head_size)
            nothing = query.new_empty(()).expand(query.shape[0], query.shape[1], key.shape[1])
            scores = torch.baddbmm(nothing, query, key.transpose(1, 2), beta=0, alpha=scale)
            if run.visible is not None:
                hidden = ~run.visible
                hidden = hidden if hidden.dim() == 2 else hidden.unsqueeze(1)
                scores.view(run.pairs, key_heads, -1, run.queries, run.keys).masked_fill_(hidden, -torch.inf)
            shares = scores.softmax(-1)
            _to_rows(torch.bmm(shares, value), attended[query_row:query_end], run.pairs, run.queries, key_heads)
            saved += [query, key, value, shares]
            query_row, key_row = query_end, key_end
        ctx.save_for_backward(*saved)
        ctx.runs, ctx.scale, ctx.key_shape = runs, scale, keys.shape
        return attended

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        (gradient,) = gradients
        of_queries = torch.empty_like(gradient)
        of_keys, of_values = gradient.new_empty(ctx.key_shape), gradient.new_empty(ctx.key_shape)
        saved = iter(ctx.saved_tensors)
        query_row = key_row = 0
        for run in ctx.runs:
            query, key, value, shares = next(saved), next(saved), next(saved), next(saved)
            key_heads, head_size = key.shape[0] // run.pairs, key.shape[2]
            query_end, key_end = query_row + run.pairs * run.queries, key_row + run.pairs * run.keys
            asked = _by_head(gradient[query_row:query_end], run.pairs, run.queries, key_heads, head_size)
            of_shares = torch.bmm(asked, value.transpose(1, 2))
            of_scores = torch._softmax_backward_data(of_shares, shares, -1, shares.dtype).mul_(ctx.scale)
            _to_rows(torch.bmm(of_scores, key), of_queries[query_row:query_end], run.pairs, run.queries, key_heads)
            of_key = torch.bmm(of_scores.transpose(1, 2), query)
            of_value = torch.bmm(shares.transpose(1, 2), asked)
            _to_rows(of_key, of_keys[key_row:key_end], run.pairs, run.keys, key_heads)
            _to_rows(of_value, of_values[key_row:key_end], run.pairs, run.keys, key_heads)
            query_row, key_row = query_end, key_end
        return of_queries, of_keys, of_values, None, None, None


def _by_head(rows: Tensor, pairs: int, length: int, key_heads: int, head_size: int) -> Tensor:
    """[pairs × key heads, query heads of one key head × length, head size]."""
    split = rows.view(pairs, length, key_heads, -1, head_size).permute(0, 2, 3, 1, 4)
    return split.reshape(pairs * key_heads, -1, head_size)


def _to_rows(by_head: Tensor, rows: Tensor, pairs: int, length: int, key_heads: int) -> None:
    """Writes what `_by_head` has split back into rows."""
    head_size = by_head.shape[2]
    split = by_head.view(pairs, key_heads, -1, length, head_size).permute(0, 3, 1, 2, 4)
    rows.view(pairs, length, key_heads, -1, head_size).copy_(split)


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
