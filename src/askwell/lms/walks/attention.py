"""Attention over packed rows: groups of pairs, padded to the longest of them.

Sentences have some ten tokens, so attention is many tiny products. In small batches it costs a CPU the number of
operators, not the padding, so a group takes pairs of similar length; many pairs of one length are a group of their own
and need no padding. On a GPU, torch's fused attention takes the same groups.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from askwell.lms.walks.walk import Rows

# Torch's softmax takes vectors of this many numbers, and the rest of a row one number at a time, five times as slowly.
_VECTOR = 16
# Pairs of different lengths that a CPU takes together, and the scores of one head: more would not stay in its cache.
_PAIRS_TOGETHER, _SCORES_TOGETHER = 64, 2**15
# This many pairs of one length are not padded.
_EVEN_PAIRS = 24
# Groups of more rows than this are not remembered.
_ROWS_REMEMBERED = 1024


# ── groups ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Group:
    """Consecutive pairs whose rows attend together. Where these are is kept in NumPy, which is quick with so little."""

    query_rows: Int[np.ndarray, "pairs queries"]
    """The row of each query; a pair that has fewer than others repeats its last."""
    key_rows: Int[np.ndarray, "pairs keys"]
    is_query: Bool[np.ndarray, "pairs queries"]
    is_key: Bool[np.ndarray, "pairs keys"]
    visible: Bool[Tensor, "pairs queries keys"] | Bool[Tensor, "pairs 1 keys"] | None
    """Which keys each query sees; None if it sees all."""
    queries: slice
    """The rows of the queries."""
    keys: slice
    device: torch.device
    _by_head: dict[tuple[int, int], "ByHead"] = field(default_factory=dict)

    def by_head(self, query_heads: int, key_heads: int) -> "ByHead":
        """Return the places of all heads, which are the same in all layers."""
        if (query_heads, key_heads) not in self._by_head:
            self._by_head[query_heads, key_heads] = ByHead(self, query_heads, key_heads)
        return self._by_head[query_heads, key_heads]


def groups_of(queries: Rows, key_lengths: tuple[int, ...], *, causal: bool) -> Sequence[Group]:
    """Return the groups in which `queries` attend to the keys of their pairs; a causal query sees no key after its own
    position, and none on another branch."""
    if causal or sum(queries.lengths) > _ROWS_REMEMBERED:
        return _groups(queries.lengths, key_lengths, queries.ids.device, queries if causal else None)
    return _remembered_groups(queries.lengths, key_lengths, queries.ids.device)


def _groups(
    query_lengths: tuple[int, ...], key_lengths: tuple[int, ...], device: torch.device, causal: Rows | None = None
) -> Sequence[Group]:
    """Return the groups of pairs with these lengths; of causal rows, those that see only keys before them."""
    together = _together(query_lengths, key_lengths, bounded=device.type == "cpu")
    return [_group(query_lengths, key_lengths, pairs, device, causal) for pairs in together]


# Steps of a training run take the same few patterns of lengths again and again.
_remembered_groups = lru_cache(maxsize=64)(_groups)


def _together(query_lengths: Sequence[int], key_lengths: Sequence[int], *, bounded: bool) -> Iterator[slice]:
    """Yield slices of pairs: many of one length, or some of which none is more than about twice as long as another."""
    start = end = longest = shortest = queries = 0
    for (own_queries, own_keys), run in groupby(zip(query_lengths, key_lengths, strict=True)):
        count, padded = sum(1 for _ in run), _whole_vectors(own_keys)
        pairs, longest, queries = end - start + count, max(longest, padded), max(queries, own_queries)
        is_too_much = bounded and (pairs > _PAIRS_TOGETHER or pairs * queries * longest > _SCORES_TOGETHER)
        if end > start and (is_too_much or longest > 2 * min(shortest, padded) or (bounded and count >= _EVEN_PAIRS)):
            yield slice(start, end)
            start, longest, queries = end, padded, own_queries
        shortest = padded if end == start else min(shortest, padded)
        end += count
        if bounded and count >= _EVEN_PAIRS:
            yield slice(start, end)
            start, longest, queries = end, 0, 0
    if end > start:
        yield slice(start, end)


def _whole_vectors(keys: int) -> int:
    return -(-keys // _VECTOR) * _VECTOR


def _group(
    query_lengths: Sequence[int], key_lengths: Sequence[int], pairs: slice, device: torch.device, causal: Rows | None
) -> Group:
    query_counts, key_counts = query_lengths[pairs], key_lengths[pairs]
    first_query, first_key = sum(query_lengths[: pairs.start]), sum(key_lengths[: pairs.start])
    query_rows, is_query = _padded(query_counts, first_query, max(query_counts))
    is_even = len({*query_counts}) == len({*key_counts}) == 1
    longest = max(key_counts) if is_even else _whole_vectors(max(key_counts))
    key_rows, is_key = _padded(key_counts, first_key, longest)
    keys, visible = key_rows.shape[1], None
    if causal is not None and causal.sees is not None:
        sees = causal.sees[_tensor(query_rows, device)]
        sees = functional.pad(sees, (0, keys - sees.shape[2])) if keys > sees.shape[2] else sees[..., :keys]
        visible = sees & _tensor(is_key, device)[:, None]
    elif causal is not None:
        at = causal.positions[_tensor(query_rows, device)]
        visible = at[:, :, None] >= torch.arange(keys, device=device)
        visible = None if is_even and bool(visible.all()) else visible
    elif min(key_counts) < keys:
        visible = _tensor(is_key, device)[:, None]
    queries = slice(first_query, first_query + sum(query_counts))
    of_keys = slice(first_key, first_key + sum(key_counts))
    return Group(query_rows, key_rows, is_query, is_key, visible, queries, of_keys, device)


def _padded(counts: Sequence[int], first: int, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of some pairs, the first pair's first row being this one, and whether they are rows or
    padding."""
    lengths, columns = np.array(counts)[:, None], np.arange(longest)
    ends = lengths.cumsum(0)
    # A pair without rows has its place taken by any other row.
    last = (ends - 1).clip(0, max(0, int(ends[-1, 0]) - 1))
    return np.minimum(ends - lengths + columns, last) + first, columns < lengths


def _tensor(array: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device)


@dataclass(frozen=True)
class Side:
    """The queries of a group, or its keys, by head: [pairs × key heads, rows, head size]."""

    rows: Int[np.ndarray, "pairs longest"]
    is_row: Bool[np.ndarray, "pairs longest"]
    own: slice
    """The rows of the group."""
    heads: int
    key_heads: int
    device: torch.device

    def of(self, rows: Float[Tensor, "rows width"], head_size: int) -> Tensor:
        """Return the group's rows by head, padded."""
        by_head = rows.reshape(-1, head_size).index_select(0, self._at)
        return by_head.view(len(self.rows) * self.key_heads, -1, head_size)

    def put(self, by_head: Tensor, rows: Float[Tensor, "rows width"]) -> None:
        """Write what belongs to the group's rows into them, without the padding."""
        head_size = by_head.shape[2]
        torch.index_select(by_head.view(-1, head_size), 0, self._places, out=rows[self.own].view(-1, head_size))

    @cached_property
    def _at(self) -> Int[Tensor, " places"]:
        """Return for each place among [pairs, heads, longest] which head of which row it is."""
        return _tensor((self.rows[:, None] * self.heads + np.arange(self.heads)[:, None]).ravel(), self.device)

    @cached_property
    def _places(self) -> Int[Tensor, " rows_and_heads"]:
        """Return for each head of each row its place among [pairs, heads, longest]."""
        pairs, columns = self.is_row.nonzero()
        of_heads = pairs[:, None] * self.heads + np.arange(self.heads)
        return _tensor((of_heads * self.is_row.shape[1] + columns[:, None]).ravel(), self.device)


class ByHead:
    """The rows of a group as attention takes them, [pairs × key heads, query heads of one key head × rows, head size].

    Fewer key heads are shared by groups of query heads, whose queries come one after the other.
    """

    def __init__(self, group: Group, query_heads: int, key_heads: int) -> None:
        self._group, self._heads = group, (query_heads, key_heads)
        pairs, queries = group.query_rows.shape
        self.shape = (pairs * key_heads, query_heads // key_heads * queries)
        self.queries = Side(group.query_rows, group.is_query, group.queries, query_heads, key_heads, group.device)
        self.keys = Side(group.key_rows, group.is_key, group.keys, key_heads, key_heads, group.device)
        self._masks: dict[torch.dtype, Tensor] = {}

    def mask(self, dtype: torch.dtype) -> Float[Tensor, "pairs_and_heads queries keys"] | None:
        """Return what is added to the scores: -inf where a query does not see a key; None if all see all."""
        visible, (query_heads, key_heads) = self._group.visible, self._heads
        if visible is not None and dtype not in self._masks:
            hidden = torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, -torch.inf)
            heads = key_heads if visible.shape[1] == 1 else query_heads
            by_head = hidden[:, None].expand(-1, heads, -1, -1)
            self._masks[dtype] = by_head.reshape(self.shape[0], -1, visible.shape[2])
        return self._masks.get(dtype)

    @cached_property
    def _is_query(self) -> Bool[Tensor, "pairs_and_heads queries 1"] | None:
        """Return whether a query is none that pads; None if none is."""
        is_query = self._group.is_query
        if is_query.all():
            return None
        by_head = np.broadcast_to(is_query[:, None], (len(is_query), self._heads[0], is_query.shape[1]))
        return _tensor(by_head.reshape(*self.shape, 1), self._group.device)

    def without_padding(self, gradient: Float[Tensor, "pairs_and_heads queries head"]) -> Tensor:
        """Return the gradient of what queries attend to, 0 where there is only padding."""
        return gradient if self._is_query is None else gradient.mul_(self._is_query)


# ── attention ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def attend(
    queries: Float[Tensor, "queries width"],
    keys: Float[Tensor, "keys key_width"],
    values: Float[Tensor, "keys key_width"],
    groups: Sequence[Group],
    head_size: int,
    scale: float,
    cap: float | None = None,
) -> Float[Tensor, "queries width"]:
    """Return the attention of each query to the keys of its pair.

    Fewer key heads are shared by groups of query heads; with a `cap`, scores are bounded by a hyperbolic tangent, as in
    Gemma 2.
    """
    if queries.device.type == "cpu" or cap is not None:
        return _Attend.apply(queries, keys, values, groups, head_size, scale, cap)
    return attend_fused(queries, keys, values, groups, head_size, scale)


def attend_fused(
    queries: Tensor, keys: Tensor, values: Tensor, groups: Sequence[Group], head_size: int, scale: float
) -> Tensor:
    """Return the same with torch's fused attention, for devices whose kernels are also fast on short sequences."""
    parts = []
    for group in groups:
        query_rows, key_rows = _tensor(group.query_rows, group.device), _tensor(group.key_rows, group.device)
        query, key, value = (
            rows.view(len(rows), -1, head_size)[at].transpose(1, 2)
            for rows, at in ((queries, query_rows), (keys, key_rows), (values, key_rows))
        )
        attended = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if group.visible is None else group.visible[:, None],
            scale=scale,
            enable_gqa=keys.shape[1] != queries.shape[1],
        )
        parts.append(attended.transpose(1, 2)[_tensor(group.is_query, group.device)].flatten(1))
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
        groups: Sequence[Group],
        head_size: int,
        scale: float,
        cap: float | None,
    ) -> Tensor:
        query_heads, key_heads = queries.shape[1] // head_size, keys.shape[1] // head_size
        attended = queries.new_empty(queries.shape)
        saved: list[Tensor] = []
        for group in groups:
            by_head = group.by_head(query_heads, key_heads)
            mask, query = by_head.mask(queries.dtype), by_head.queries.of(queries, head_size)
            key, value = (by_head.keys.of(rows, head_size) for rows in (keys, values))
            nothing = query.new_empty(()).expand(*query.shape[:2], key.shape[1])
            if mask is None or cap is not None:
                scores = torch.baddbmm(nothing, query, key.transpose(1, 2), beta=0, alpha=scale)
            else:
                scores = torch.baddbmm(mask, query, key.transpose(1, 2), alpha=scale)
            if cap is not None:
                scores.div_(cap).tanh_()
                saved.append(1 - scores.square())  # the slope of the cap
                scores.mul_(cap)
                scores = scores if mask is None else scores.add_(mask)
            probs = _softmax_(scores)
            by_head.queries.put(torch.bmm(probs, value), attended)
            saved += [query, key, value, probs]
        ctx.save_for_backward(*saved)
        ctx.groups, ctx.scale, ctx.cap = groups, scale, cap
        ctx.heads, ctx.key_shape = (query_heads, key_heads), keys.shape
        return attended

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None, None]:
        gradient = gradients[0].contiguous()
        of_queries = torch.empty_like(gradient)
        of_keys, of_values = gradient.new_empty(ctx.key_shape), gradient.new_empty(ctx.key_shape)
        saved = iter(ctx.saved_tensors)
        for group in ctx.groups:
            by_head = group.by_head(*ctx.heads)
            slope = None if ctx.cap is None else next(saved)
            query, key, value, probs = next(saved), next(saved), next(saved), next(saved)
            of_output = by_head.without_padding(by_head.queries.of(gradient, query.shape[2]))
            of_probs = torch.bmm(of_output, value.transpose(1, 2))
            of_scores = _of_scores(of_probs, probs).mul_(ctx.scale)
            if slope is not None:
                of_scores.mul_(slope)
            by_head.queries.put(torch.bmm(of_scores, key), of_queries)
            by_head.keys.put(torch.bmm(of_scores.transpose(1, 2), query), of_keys)
            by_head.keys.put(torch.bmm(probs.transpose(1, 2), of_output), of_values)
        return of_queries, of_keys, of_values, None, None, None, None


def _softmax_(scores: Tensor) -> Tensor:
    """Return the softmax over the last dimension; the scores may be overwritten."""
    if scores.shape[-1] >= _VECTOR:
        return scores.softmax(-1)
    exponentials = scores.sub_(scores.amax(-1, keepdim=True)).exp_()
    return exponentials.div_(exponentials.sum(-1, keepdim=True))


def _of_scores(of_probs: Tensor, probs: Tensor) -> Tensor:
    """Return the gradient of the scores, given that of their softmax."""
    weighted = of_probs * probs
    return weighted.sub_(probs * weighted.sum(-1, keepdim=True))
