"""A batch as rows: one row for each token, pair after pair, without padding.

Pairs are sorted by their lengths, so that pairs of equal lengths stand together: attention, the one part of a layer in
which tokens meet, then works on each such segment as it lies, without a padding mask.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from askwell.lms.batches import Batch


@dataclass(frozen=True)
class Segment:
    """Consecutive pairs that all have the same number of queries and the same number of keys."""

    pairs: int
    queries: int
    keys: int
    visible: Tensor | None = None
    """Which keys each query sees, [queries, keys] or [pairs, 1, queries, keys]; None if all."""


@dataclass(frozen=True)
class Rows:
    """Rows of one stack, or those of them that are read."""

    ids: Int[Tensor, " rows"]
    positions: Int[Tensor, " rows"]
    """The position of each token in its own sequence."""
    tuned: Int[Tensor, " tuned"]
    """The rows at which prompt tokens stand."""
    prompt_tokens: Int[Tensor, " tuned"]
    """The prompt token at each of them, as a row of the tuned vectors."""
    lengths: tuple[int, ...]
    """Rows of each pair."""


@dataclass(frozen=True)
class PackedBatch:
    """A batch of pairs, packed into rows. Pairs are sorted by their lengths."""

    streams: Mapping[str, Rows]
    read_at: Int[Tensor, " reads"]
    """The rows of the last stack that are read."""
    reads: Rows
    """These rows by themselves."""
    unsort: Int[Tensor, " reads"]
    """What brings reads back into the batch's own order."""


def pack(batch: Batch) -> PackedBatch:
    """The batch without its padding."""
    device = batch.read_pairs.device
    last = list(batch.streams)[-1]
    read_counts = torch.bincount(batch.read_pairs, minlength=len(batch.streams[last].lengths))
    key = torch.zeros_like(read_counts)
    for counts in (*(stream.lengths for stream in batch.streams.values()), read_counts):
        key = key * (int(counts.max()) + 1) + counts
    order = key.argsort(stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=device)
    streams = {}
    for name, stream in batch.streams.items():
        pairs, positions = stream.attention_mask[order].nonzero(as_tuple=True)
        pairs = order[pairs]
        streams[name] = _rows(
            stream.ids[pairs, positions],
            positions,
            stream.prompt_tokens[pairs, positions],
            tuple(stream.lengths[order].tolist()),
        )
    sorted_pairs = place[batch.read_pairs]
    read_order = sorted_pairs.argsort(stable=True)
    lengths = batch.streams[last].lengths[order]
    first_rows = lengths.cumsum(0) - lengths
    read_positions = batch.read_positions[read_order]
    read_at = first_rows[sorted_pairs[read_order]] + read_positions
    prompt_tokens = batch.streams[last].prompt_tokens[batch.read_pairs[read_order], read_positions]
    reads = _rows(streams[last].ids[read_at], read_positions, prompt_tokens, tuple(read_counts[order].tolist()))
    return PackedBatch(streams, read_at, reads, read_order.argsort())


def segments_of(queries: Rows, keys: Rows, *, causal: bool) -> list[Segment]:
    """The segments in which `queries` attend to `keys`; a causal query sees no key after its own position."""
    segments, start, query_row = [], 0, 0
    lengths = list(zip(queries.lengths, keys.lengths, strict=True))
    for end in range(1, len(lengths) + 1):
        if end < len(lengths) and lengths[end] == lengths[start]:
            continue
        (query_count, key_count), pairs = lengths[start], end - start
        visible = None
        if causal:
            at = queries.positions[query_row : query_row + pairs * query_count].view(pairs, query_count, 1)
            visible = at >= torch.arange(key_count, device=at.device)
            if query_count == key_count:
                visible = visible[0] if key_count > 1 else None
            else:
                visible = None if bool(visible.all()) else visible.unsqueeze(1)
        segments.append(Segment(pairs, query_count, key_count, visible))
        query_row += pairs * query_count
        start = end
    return segments


def _rows(
    ids: Int[Tensor, " rows"],
    positions: Int[Tensor, " rows"],
    prompt_tokens: Int[Tensor, " rows"],
    lengths: tuple[int, ...],
) -> Rows:
    tuned = (prompt_tokens >= 0).nonzero()[:, 0]
    return Rows(ids, positions, tuned, prompt_tokens[tuned], lengths)
