"""What a walk takes and gives: a batch as rows, one for each token, pair after pair, without padding.

Pairs are sorted by length, so that similar lengths are side by side: attention, the only part of a layer in which
tokens interact, then takes groups of pairs that need little padding.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from askwell.lms.batches import Batch
from askwell.lms.walks.output import Head
from askwell.lms.walks.past import Memory, Past, Paths

Deltas = Mapping[str, Sequence[Float[Tensor, "prompt_tokens hidden"]]] | None
"""What is added as each layer of each stack is left, [prompt tokens, hidden]."""


@dataclass(frozen=True)
class Rows:
    """Rows of one stack, or those of them that are read."""

    ids: Int[Tensor, " rows"]
    positions: Int[Tensor, " rows"]
    """The position of each token in its own sequence, its past included."""
    tuned: Int[Tensor, " tuned"]
    """The rows of prompt tokens."""
    prompt_tokens: Int[Tensor, " tuned"]
    """The prompt token at each of them, as a row of the tuned vectors."""
    lengths: tuple[int, ...]
    """Rows of each pair."""
    sees: Bool[Tensor, "rows longest_keys"] | None = None
    """Of the branches of a tree: which keys of its pair each row sees; None where it sees all before it."""


@dataclass(frozen=True)
class PackedBatch:
    """A batch of pairs, packed into rows. Pairs are sorted by their lengths."""

    streams: Mapping[str, Rows]
    read_at: Int[Tensor, " reads"]
    """The rows of the last stack that are read."""
    reads: Rows
    """These rows by themselves."""
    unsort: Int[Tensor, " reads"]
    """Puts reads back into the batch's original order."""
    place: Int[Tensor, " pairs"]
    """The place of each of the batch's pairs among the sorted ones."""
    key_lengths: tuple[int, ...]
    """The keys of the last stack that each pair sees: its past's and its own."""
    source_lengths: tuple[int, ...]
    """The rows of the first stack that each pair sees."""
    memory: Memory

    def kept(self) -> Past:
        """Return what a walk has kept of the batch's own rows, for its pairs in their own order."""
        paths = []
        for rows in self.streams.values():
            lengths = torch.tensor(rows.lengths, device=self.place.device)
            paths.append(Paths.consecutive(lengths.cumsum(0) - lengths, lengths).of(self.place))
        *source, own = paths
        return Past(self.memory.kept(), own, source[0] if source else None)


def pack(batch: Batch, *, keeps: bool = False) -> PackedBatch:
    """Return the batch without its padding; with `keeps`, a walk keeps its keys and values."""
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
    streams, sees = {}, None
    for name, stream in batch.streams.items():
        pairs, positions = stream.attention_mask[order].nonzero(as_tuple=True)
        pairs = order[pairs]
        depths = positions
        if batch.branches is not None and name == last:
            depths = batch.branches[pairs, positions].sum(1) - 1
            sees = _seen(batch.branches[pairs, positions], past.paths.lengths[pairs] if past else 0 * pairs)
        streams[name] = _rows(
            stream.ids[pairs, positions],
            depths if past is None else depths + past.paths.lengths[pairs],
            stream.prompt_tokens[pairs, positions],
            tuple(stream.lengths[order].tolist()),
            sees,
        )
    sorted_pairs = place[batch.read_pairs]
    read_order = sorted_pairs.argsort(stable=True)
    lengths = batch.streams[last].lengths[order]
    first_rows = lengths.cumsum(0) - lengths
    read_at = first_rows[sorted_pairs[read_order]] + batch.read_positions[read_order]
    prompt_tokens = batch.streams[last].prompt_tokens[batch.read_pairs[read_order], batch.read_positions[read_order]]
    own_lengths = streams[last].lengths
    memory, key_lengths, source_lengths = Memory(keeps=keeps), own_lengths, streams[next(iter(streams))].lengths
    if past is not None:
        source = None if past.source is None else past.source.of(order)
        memory = Memory.of(Past(past.kept, past.paths.of(order), source), own_lengths, keeps=keeps)
        key_lengths = tuple((past.paths.lengths[order] + lengths).tolist())
        source_lengths = () if source is None else tuple(source.lengths.tolist())
    rows = streams[last]
    reads = _rows(
        rows.ids[read_at],
        rows.positions[read_at],
        prompt_tokens,
        tuple(read_counts[order].tolist()),
        None if sees is None else sees[read_at],
    )
    return PackedBatch(streams, read_at, reads, read_order.argsort(), place, key_lengths, source_lengths, memory)


def _rows(
    ids: Int[Tensor, " rows"],
    positions: Int[Tensor, " rows"],
    prompt_tokens: Int[Tensor, " rows"],
    lengths: tuple[int, ...],
    sees: Bool[Tensor, "rows longest_keys"] | None,
) -> Rows:
    tuned = (prompt_tokens >= 0).nonzero()[:, 0]
    return Rows(ids, positions, tuned, prompt_tokens[tuned], lengths, sees)


def _seen(own: Bool[Tensor, "rows positions"], past_lengths: Int[Tensor, " rows"]) -> Bool[Tensor, "rows longest_keys"]:
    """Return which keys rows see: all of their past, and these of their pair's own tokens."""
    before = past_lengths[:, None]
    columns = torch.arange(int(past_lengths.max()) + own.shape[1], device=own.device).expand(len(own), -1)
    at = columns - before
    return (at < 0) | (own.gather(1, at.clamp(0, own.shape[1] - 1)) & (at < own.shape[1]))


@dataclass(frozen=True)
class Walk:
    """The way through a model, from packed word vectors to distributions at the rows that are read."""

    hidden: Callable[[PackedBatch, Mapping[str, Tensor], Deltas], Tensor]
    """From each stack's word vectors to what the output embedding reads, [reads, width]."""
    head: Head


def insert_prompt_vectors(
    words: Float[Tensor, "rows embedding"], rows: Rows, vectors: Float[Tensor, "prompt_tokens embedding"]
) -> Float[Tensor, "rows embedding"]:
    """Return the word vectors with the tuned ones at the prompt tokens."""
    return words.index_copy_(0, rows.tuned, functional.embedding(rows.prompt_tokens, vectors).to(words.dtype))


def perturb(hidden: Float[Tensor, "rows hidden"], rows: Rows, deltas: Deltas, stack: str, layer: int) -> Tensor:
    """Return the hidden states as they leave a layer, with its delta at the prompt tokens alone."""
    if deltas is None or not len(rows.tuned):
        return hidden
    added = functional.embedding(rows.prompt_tokens, deltas[stack][layer])
    return hidden.index_add_(0, rows.tuned, added.to(hidden.dtype))


def rows_at(hidden: Tensor, at: Tensor) -> Tensor:
    """Return the rows at these places."""
    return torch.index_select(hidden, 0, at)
