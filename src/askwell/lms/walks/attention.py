"""Attention over packed rows: segment by segment, so that nothing is padded or masked out."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from askwell.lms.walks.rows import Segment

# Torch's softmax processes rows with fewer numbers than this one number at a time, five times as slowly.
_SHORT_ROW = 16


def attend(
    queries: Float[Tensor, "queries width"],
    keys: Float[Tensor, "keys key_width"],
    values: Float[Tensor, "keys key_width"],
    segments: Sequence[Segment],
    head_size: int,
    scale: float,
    cap: float | None = None,
) -> Float[Tensor, "queries width"]:
    """Attention of each query to the keys of its pair. Fewer key heads are shared by groups of query heads; with a
    `cap`, scores are bounded by a hyperbolic tangent, as in Gemma 2."""
    if queries.device.type == "cpu" or cap is not None:
        return _Attend.apply(queries, keys, values, segments, head_size, scale, cap)
    return attend_fused(queries, keys, values, segments, head_size, scale)


def attend_fused(
    queries: Tensor, keys: Tensor, values: Tensor, segments: Sequence[Segment], head_size: int, scale: float
) -> Tensor:
    """The same with torch's fused attention, for devices whose kernels are also fast on short sequences."""
    parts = []
    for segment, query, key, value in zip(
        segments,
        queries.split([segment.pairs * segment.queries for segment in segments]),
        keys.split([segment.pairs * segment.keys for segment in segments]),
        values.split([segment.pairs * segment.keys for segment in segments]),
        strict=True,
    ):
        visible = (
            segment.visible if segment.visible is None or segment.visible.dim() == 4 else segment.visible[None, None]
        )
        attended = functional.scaled_dot_product_attention(
            query.view(segment.pairs, segment.queries, -1, head_size).transpose(1, 2),
            key.view(segment.pairs, segment.keys, -1, head_size).transpose(1, 2),
            value.view(segment.pairs, segment.keys, -1, head_size).transpose(1, 2),
            attn_mask=visible,
            scale=scale,
            enable_gqa=keys.shape[1] != queries.shape[1],
        )
        parts.append(attended.transpose(1, 2).reshape(segment.pairs * segment.queries, -1))
    return torch.cat(parts)


class _Attend(torch.autograd.Function):
    """Attention as batched products of small matrices: for sequences of some ten tokens these are faster on a CPU than
    its fused kernel, which is made for long ones."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        segments: Sequence[Segment],
        head_size: int,
        scale: float,
        cap: float | None,
    ) -> Tensor:
        key_heads = keys.shape[1] // head_size
        attended = queries.new_empty(queries.shape)
        saved: list[Tensor] = []
        query_row = key_row = 0
        for segment in segments:
            pairs, query_count, key_count = segment.pairs, segment.queries, segment.keys
            query_end, key_end = query_row + pairs * query_count, key_row + pairs * key_count
            query = _by_head(queries[query_row:query_end], pairs, query_count, key_heads, head_size)
            key = _by_head(keys[key_row:key_end], pairs, key_count, key_heads, head_size)
            value = _by_head(values[key_row:key_end], pairs, key_count, key_heads, head_size)
            nothing = query.new_empty(()).expand(query.shape[0], query.shape[1], key.shape[1])
            scores = torch.baddbmm(nothing, query, key.transpose(1, 2), beta=0, alpha=scale)
            if cap is not None:
                scores.div_(cap).tanh_()
                saved.append(1 - scores.square())  # the slope of the cap
                scores.mul_(cap)
            if segment.visible is not None:
                hidden = ~segment.visible
                hidden = hidden if hidden.dim() == 2 else hidden.unsqueeze(1)
                scores.view(pairs, key_heads, -1, query_count, key_count).masked_fill_(hidden, -torch.inf)
            probs = _softmax_(scores)
            _to_rows(torch.bmm(probs, value), attended[query_row:query_end], pairs, query_count, key_heads)
            saved += [query, key, value, probs]
            query_row, key_row = query_end, key_end
        ctx.save_for_backward(*saved)
        ctx.segments, ctx.scale, ctx.cap, ctx.key_shape = segments, scale, cap, keys.shape
        return attended

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None, None]:
        (gradient,) = gradients
        of_queries = torch.empty_like(gradient)
        of_keys, of_values = gradient.new_empty(ctx.key_shape), gradient.new_empty(ctx.key_shape)
        saved = iter(ctx.saved_tensors)
        query_row = key_row = 0
        for segment in ctx.segments:
            pairs, query_count, key_count = segment.pairs, segment.queries, segment.keys
            slope = None if ctx.cap is None else next(saved)
            query, key, value, probs = next(saved), next(saved), next(saved), next(saved)
            key_heads, head_size = key.shape[0] // pairs, key.shape[2]
            query_end, key_end = query_row + pairs * query_count, key_row + pairs * key_count
            of_output = _by_head(gradient[query_row:query_end], pairs, query_count, key_heads, head_size)
            of_probs = torch.bmm(of_output, value.transpose(1, 2))
            of_scores = _of_scores(of_probs, probs).mul_(ctx.scale)
            if slope is not None:
                of_scores.mul_(slope)
            _to_rows(torch.bmm(of_scores, key), of_queries[query_row:query_end], pairs, query_count, key_heads)
            of_key = torch.bmm(of_scores.transpose(1, 2), query)
            of_value = torch.bmm(probs.transpose(1, 2), of_output)
            _to_rows(of_key, of_keys[key_row:key_end], pairs, key_count, key_heads)
            _to_rows(of_value, of_values[key_row:key_end], pairs, key_count, key_heads)
            query_row, key_row = query_end, key_end
        return of_queries, of_keys, of_values, None, None, None, None


def _softmax_(scores: Tensor) -> Tensor:
    """The softmax over the last dimension; the scores may be overwritten."""
    if scores.shape[-1] >= _SHORT_ROW:
        return scores.softmax(-1)
    exponentials = scores.sub_(scores.amax(-1, keepdim=True)).exp_()
    return exponentials.div_(exponentials.sum(-1, keepdim=True))


def _of_scores(of_probs: Tensor, probs: Tensor) -> Tensor:
    """The gradient of the scores, given that of their softmax."""
    if probs.shape[-1] >= _SHORT_ROW:
        return torch._softmax_backward_data(of_probs, probs, -1, probs.dtype)
    weighted = of_probs * probs
    return weighted.sub_(probs * weighted.sum(-1, keepdim=True))


def _by_head(rows: Tensor, pairs: int, length: int, key_heads: int, head_size: int) -> Tensor:
    """[pairs × key heads, query heads of one key head × length, head size]."""
    split = rows.view(pairs, length, key_heads, -1, head_size).permute(0, 2, 3, 1, 4)
    return split.reshape(pairs * key_heads, -1, head_size)


def _to_rows(by_head: Tensor, rows: Tensor, pairs: int, length: int, key_heads: int) -> None:
    """Writes what `_by_head` has split back into rows."""
    head_size = by_head.shape[2]
    split = by_head.view(pairs, key_heads, -1, length, head_size).permute(0, 3, 1, 2, 4)
    rows.view(pairs, length, key_heads, -1, head_size).copy_(split)
