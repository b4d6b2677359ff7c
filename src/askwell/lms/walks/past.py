"""Kept keys and values: the beginning of a sentence is read once, for all sentences that continue it.

In a causal LM and in a decoder nothing that is computed for a token depends on the tokens after it. So the keys and
values of a beginning can be kept as rows of a table, and sentences that share it read only their own tokens. Rows with
gradients get those of everything that has seen them; rows without are constants. Masked LMs have no past: in them
every token sees all others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

KeysAndValues = tuple[Tensor, Tensor]
"""Of one layer, [rows, key width] each, as attention takes them: rotary embeddings are already applied."""


@dataclass(frozen=True)
class KeptRows:
    """The keys and values of some rows at every layer."""

    layers: tuple[KeysAndValues, ...]
    source: tuple[KeysAndValues, ...] = ()
    """Of a seq2seq LM those of the encoder's rows, as each layer's cross-attention takes them."""

    @property
    def count(self) -> int:
        """Return how many rows there are, without the encoder's."""
        return len(self.layers[0][0])

    @property
    def source_count(self) -> int:
        """Return how many of the encoder's rows there are."""
        return len(self.source[0][0]) if self.source else 0


@dataclass(frozen=True)
class Paths:
    """For each of several sentences the rows of a table that are its beginning, in the order of its tokens."""

    rows: Int[Tensor, "sentences longest"]
    lengths: Int[Tensor, " sentences"]

    @classmethod
    def consecutive(cls, first: Int[Tensor, " sentences"], lengths: Int[Tensor, " sentences"]) -> "Paths":
        """Return consecutive rows, starting at a first one."""
        longest = int(lengths.max()) if len(lengths) else 0
        return cls(first[:, None] + torch.arange(longest, device=first.device), lengths)

    def of(self, chosen: Int[Tensor, " chosen"]) -> "Paths":
        """Return those of some of the sentences, which may be named several times."""
        lengths = self.lengths[chosen]
        return Paths(self.rows[chosen][:, : int(lengths.max()) if len(lengths) else 0], lengths)

    @classmethod
    def stacked(cls, parts: "Sequence[Paths]") -> "Paths":
        """Return the paths of all parts, one part after the other."""
        longest = max(part.rows.shape[1] for part in parts)
        rows = [functional.pad(part.rows, (0, longest - part.rows.shape[1])) for part in parts]
        return cls(torch.cat(rows), torch.cat([part.lengths for part in parts]))

    def followed_by(self, others: "Paths", rows_before: int) -> "Paths":
        """Return each path and then another, whose rows come after this many in the table."""
        lengths = self.lengths + others.lengths
        longest = int(lengths.max()) if len(lengths) else 0
        at = torch.arange(longest, device=self.rows.device).expand(len(lengths), -1)
        own = functional.pad(self.rows, (0, longest - self.rows.shape[1]))
        if not others.rows.shape[1]:
            return Paths(own, lengths)
        later = (at - self.lengths[:, None]).clamp(0, others.rows.shape[1] - 1)
        return Paths(torch.where(at < self.lengths[:, None], own, others.rows.gather(1, later) + rows_before), lengths)

    def in_a_row(self) -> Int[Tensor, " all_rows"]:
        """Return all rows of all sentences, one sentence after the other."""
        return self.rows[torch.arange(self.rows.shape[1], device=self.rows.device) < self.lengths[:, None]]


@dataclass(frozen=True)
class Past:
    """What the pairs of a batch see before their own tokens."""

    kept: KeptRows
    paths: Paths
    """The rows of `kept` that each pair sees, from its sentence's first token on."""
    source: Paths | None = None
    """The encoder's rows that each pair sees, in a seq2seq LM."""

    def of(self, chosen: Int[Tensor, " chosen"]) -> "Past":
        """Return the past of some of the pairs, which may be named several times."""
        return Past(self.kept, self.paths.of(chosen), None if self.source is None else self.source.of(chosen))

    def compact(self) -> "Past":
        """Return the same with a separate table of only the rows that the pairs see, without an encoder's."""
        rows = self.paths.in_a_row()
        layers = tuple((keys.index_select(0, rows), values.index_select(0, rows)) for keys, values in self.kept.layers)
        lengths = self.paths.lengths
        return Past(KeptRows(layers), Paths.consecutive(lengths.cumsum(0) - lengths, lengths))

    def with_own(self, own: "Past") -> "Past":
        """Return what the pairs have seen and then read themselves; `own` is what was kept of that."""
        rows = KeptRows(_joined([self.kept.layers, own.kept.layers]), self.kept.source)
        return Past(rows, self.paths.followed_by(own.paths, self.kept.count), self.source)

    @classmethod
    def joined(cls, parts: "Sequence[Past]") -> "Past":
        """Return the pasts of all parts' pairs, one part after the other."""
        paths, sources, rows, source_rows = [], [], 0, 0
        for part in parts:
            paths.append(Paths(part.paths.rows + rows, part.paths.lengths))
            if part.source is not None:
                sources.append(Paths(part.source.rows + source_rows, part.source.lengths))
            rows, source_rows = rows + part.kept.count, source_rows + part.kept.source_count
        of_encoders = [part.kept.source for part in parts if part.kept.source]
        kept = KeptRows(_joined([part.kept.layers for part in parts]), _joined(of_encoders))
        return cls(kept, Paths.stacked(paths), Paths.stacked(sources) if sources else None)


@dataclass
class Memory:
    """Accompanies a batch through a walk: puts a past before each layer's own keys and values, and keeps these."""

    past: Past | None = None
    keeps: bool = False
    seen: Int[Tensor, " keys"] | None = None
    """With a past: for each key the row of the table that it is, pair after pair; anything at a pair's own rows."""
    own_at: Int[Tensor, " rows"] | None = None
    """With a past: where a batch's own rows are among the keys."""
    layers: list[KeysAndValues] = field(default_factory=list)
    source: list[KeysAndValues] = field(default_factory=list)

    @classmethod
    def of(cls, past: Past, own_lengths: Sequence[int], *, keeps: bool) -> "Memory":
        """Return the memory of a batch whose pairs have this many own rows."""
        device = past.paths.rows.device
        own = torch.tensor(own_lengths, device=device)
        lengths = past.paths.lengths + own
        first = lengths.cumsum(0) - lengths
        seen = torch.zeros(int(lengths.sum()), dtype=torch.long, device=device)
        seen[ranges(first, past.paths.lengths)] = past.paths.in_a_row()
        return cls(past, keeps, seen, ranges(first + past.paths.lengths, own))

    def join(self, number: int, keys: Tensor, values: Tensor) -> KeysAndValues:
        """Return the keys and values that a layer's rows see, given its own."""
        if self.keeps:
            self.layers.append((keys, values))
        if self.past is None or self.seen is None or self.own_at is None:
            return keys, values
        past_keys, past_values = self.past.kept.layers[number]
        return (
            past_keys.index_select(0, self.seen).index_copy_(0, self.own_at, keys),
            past_values.index_select(0, self.seen).index_copy_(0, self.own_at, values),
        )

    def keep_source(self, keys: Tensor, values: Tensor) -> KeysAndValues:
        """Keep a layer's keys and values of the encoder's rows, and return them unchanged."""
        if self.keeps:
            self.source.append((keys, values))
        return keys, values

    def of_source(self, number: int) -> KeysAndValues:
        """Return the kept keys and values of the encoder's rows that the batch's pairs see."""
        if self.past is None or self.past.source is None:
            raise ValueError("the encoder's rows were not kept")
        keys, values = self.past.kept.source[number]
        rows = self.past.source.in_a_row()
        return keys.index_select(0, rows), values.index_select(0, rows)

    def kept(self) -> KeptRows:
        """Return everything that was kept during the walk."""
        return KeptRows(tuple(self.layers), tuple(self.source))


def _joined(parts: Sequence[tuple[KeysAndValues, ...]]) -> tuple[KeysAndValues, ...]:
    """Return, layer by layer, the rows of all parts."""
    if len(parts) == 1:
        return parts[0]
    return tuple(
        (torch.cat([keys for keys, _ in of_layer]), torch.cat([values for _, values in of_layer]))
        for of_layer in zip(*parts, strict=True)
    )


def ranges(first: Int[Tensor, " ranges"], lengths: Int[Tensor, " ranges"]) -> Int[Tensor, " numbers"]:
    """Return the numbers first[i], first[i] + 1, … of each range, one range after the other."""
    starts = (first - (lengths.cumsum(0) - lengths)).repeat_interleave(lengths)
    return starts + torch.arange(len(starts), device=first.device)
