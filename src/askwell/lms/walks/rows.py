"""A batch as rows: one row for each token, pair after pair, without padding.

Pairs are sorted by their lengths, so that pairs of equal lengths stand together: attention, the one part of a layer in
which tokens meet, then works on each such segment as it lies, without a padding mask.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from askwell.lms.batches import Batch
from askwell.lms.walks.past import Memory, Past, Paths


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
    """The position of each token in its own sequence, its past included."""
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
    place: Int[Tensor, " pairs"]
    """The place of each of the batch's pairs among the sorted ones."""
    key_lengths: tuple[int, ...]
    """The keys of the last stack that each pair sees: its past's and its own."""
    source_lengths: tuple[int, ...]
    """The rows of the first stack that each pair sees."""
    memory: Memory

    def kept(self) -> Past:
        """What a walk has kept of the batch's own rows, for its pairs in their own order."""
        paths = []
        for rows in self.streams.values():
            lengths = torch.tensor(rows.lengths, device=self.place.device)
            paths.append(Paths.consecutive(lengths.cumsum(0) - lengths, lengths).of(self.place))
        *source, own = paths
        return Past(self.memory.kept(), own, source[0] if source else None)


def pack(batch: Batch, *, keeps: bool = False) -> PackedBatch:
    """The batch without its padding; a walk through it keeps its keys and values if that is asked for."""
    device, past = batch.read_pairs.device, batch.past
    last = list(batch.streams)[-1]
    read_counts = torch.bincount(batch.read_pairs, minlength=len(batch.streams[last].lengths))
    key = torch.zeros_like(read_counts)
    of_past = () if past is None else tuple(paths.lengths for paths in (past.source, past.paths) if paths is not None)
    for counts in (*of_past, *(stream.lengths for stream in batch.streams.values()), read_counts):
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
            positions if past is None else positions + past.paths.lengths[pairs],
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
    own_lengths = streams[last].lengths
    memory, key_lengths, source_lengths = Memory(keeps=keeps), own_lengths, streams[next(iter(streams))].lengths
    if past is not None:
        read_positions = read_positions + past.paths.lengths[batch.read_pairs[read_order]]
        source = None if past.source is None else past.source.of(order)
        memory = Memory.of(Past(past.kept, past.paths.of(order), source), own_lengths, keeps=keeps)
        key_lengths = tuple((past.paths.lengths[order] + lengths).tolist())
        source_lengths = () if source is None else tuple(source.lengths.tolist())
    reads = _rows(streams[last].ids[read_at], read_positions, prompt_tokens, tuple(read_counts[order].tolist()))
    return PackedBatch(
        streams, read_at, reads, read_order.argsort(), place, key_lengths, source_lengths, memory
    )  # fmt: skip


def segments_of(queries: Rows, key_lengths: Sequence[int], *, causal: bool) -> list[Segment]:
    """The segments in which `queries` attend to the keys of their pairs; a causal query sees no key after its own
    position."""
    segments, start, query_row = [], 0, 0
    lengths = list(zip(queries.lengths, key_lengths, strict=True))
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
