"""Keys and values that are kept: the beginning of a sentence is read once, for all that go on from it.

In a causal LM and in a decoder nothing that is computed of a token depends on the tokens after it. So the keys and
values of a beginning can be kept as rows of a table, and sentences that share it read their own tokens alone. Rows that
carry gradients get those of everything that has seen them; rows that do not are constants. Masked LMs have no past: in
them every token sees all others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Int
from torch import Tensor

KeysAndValues = tuple[Tensor, Tensor]
"""Of one layer, [rows, key width] each, as attention takes them: rotary embeddings are already applied."""


@dataclass(frozen=True)
class KeptRows:
    """The keys and values of some rows at every layer."""

    layers: tuple[KeysAndValues, ...]
    source: tuple[KeysAndValues, ...] = ()
    """Of a seq2seq LM those of the encoder's rows, as each layer's cross-attention takes them."""

    def followed_by(self, others: "KeptRows") -> "KeptRows":
        """These rows and then others; the encoder's rows stay."""
        joined = (
            (torch.cat([keys, more_keys]), torch.cat([values, more_values]))
            for (keys, values), (more_keys, more_values) in zip(self.layers, others.layers, strict=True)
        )
        return KeptRows(tuple(joined), self.source)

    @property
    def count(self) -> int:
        """How many rows there are, without the encoder's."""
        return len(self.layers[0][0])


@dataclass(frozen=True)
class Paths:
    """For each of several sentences the rows of a table that are its beginning, in the order of its tokens."""

    rows: Int[Tensor, "sentences longest"]
    lengths: Int[Tensor, " sentences"]

    @classmethod
    def consecutive(cls, first: Int[Tensor, " sentences"], lengths: Int[Tensor, " sentences"]) -> "Paths":
        """Rows that stand one after the other, from a first one on."""
        longest = int(lengths.max()) if len(lengths) else 0
        return cls(first[:, None] + torch.arange(longest, device=first.device), lengths)

    def of(self, chosen: Int[Tensor, " chosen"]) -> "Paths":
        """Those of some of the sentences, which may be named several times."""
        lengths = self.lengths[chosen]
        return Paths(self.rows[chosen][:, : int(lengths.max()) if len(lengths) else 0], lengths)

    def then(self, rows: Int[Tensor, " sentences"]) -> "Paths":
        """Each path with one more row."""
        longer = torch.cat([self.rows, self.rows.new_zeros(len(self.rows), 1)], dim=1)
        return Paths(longer.scatter(1, self.lengths[:, None], rows[:, None]), self.lengths + 1)

    def in_a_row(self) -> Int[Tensor, " all_rows"]:
        """All rows of all sentences, one sentence after the other."""
        return self.rows[torch.arange(self.rows.shape[1], device=self.rows.device) < self.lengths[:, None]]


@dataclass(frozen=True)
class Past:
    """What the pairs of a batch see before their own tokens."""

    kept: KeptRows
    paths: Paths
    """The rows of `kept` that each pair sees, from its sentence's first token on."""
    source: Paths | None = None
    """The encoder's rows that each pair sees, in a seq2seq LM."""


@dataclass(frozen=True)
class Kept:
    """What was kept of a batch: the rows, and where those of each pair begin, in the batch's own order."""

    rows: KeptRows
    first: Int[Tensor, " pairs"]
    source_first: Int[Tensor, " pairs"] | None = None


@dataclass
class Memory:
    """Goes through a walk with a batch: lays a past before each layer's own keys and values, and keeps these."""

    past: Past | None = None
    keeps: bool = False
    seen: Int[Tensor, " keys"] | None = None
    """With a past: for each key the row of the table that it is, pair after pair; anything at a pair's own rows."""
    own_at: Int[Tensor, " rows"] | None = None
    """With a past: where among the keys a batch's own rows stand."""
    layers: list[KeysAndValues] = field(default_factory=list)
    source: list[KeysAndValues] = field(default_factory=list)

    @classmethod
    def of(cls, past: Past, own_lengths: Sequence[int], *, keeps: bool) -> "Memory":
        """The memory of a batch whose pairs have so many rows of their own."""
        device = past.paths.rows.device
        own = torch.tensor(own_lengths, device=device)
        lengths = past.paths.lengths + own
        first = lengths.cumsum(0) - lengths
        seen = torch.zeros(int(lengths.sum()), dtype=torch.long, device=device)
        seen[_ranges(first, past.paths.lengths)] = past.paths.in_a_row()
        return cls(past, keeps, seen, _ranges(first + past.paths.lengths, own))

    def join(self, number: int, keys: Tensor, values: Tensor) -> KeysAndValues:
        """The keys and values that a layer's rows see, given its own."""
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
        """A layer's keys and values of the encoder's rows, as they are."""
        if self.keeps:
            self.source.append((keys, values))
        return keys, values

    def of_source(self, number: int) -> KeysAndValues:
        """The kept keys and values of the encoder's rows that the batch's pairs see."""
        if self.past is None or self.past.source is None:
            raise ValueError("the encoder's rows were not kept")
        keys, values = self.past.kept.source[number]
        rows = self.past.source.in_a_row()
        return keys.index_select(0, rows), values.index_select(0, rows)

    def kept(self) -> KeptRows:
        """All that was kept on the way."""
        return KeptRows(tuple(self.layers), tuple(self.source))


def _ranges(first: Int[Tensor, " ranges"], lengths: Int[Tensor, " ranges"]) -> Int[Tensor, " numbers"]:
    """The numbers first[i], first[i] + 1, … of each range, one range after the other."""
    starts = (first - (lengths.cumsum(0) - lengths)).repeat_interleave(lengths)
    return starts + torch.arange(len(starts), device=first.device)
