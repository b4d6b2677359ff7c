"""Batches: from (fact, prompt) pairs to the tensors that an LM reads, by gathers alone."""

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from askwell.lms.families import Question, Stream, Token, X
from askwell.lms.tokenisation import Place, Wording
from askwell.lms.walks.past import Past, ranges

PLACES = (Place.SPACED, Place.GLUED)
TokenRows = Sequence[Sequence[int]]
"""For each prompt the rows of the tuned vectors that its tokens have."""


@dataclass(frozen=True)
class Words:
    """The tokens of a list of texts at each place, as they fill the blanks of prompts."""

    ids: Int[Tensor, "places texts longest"]
    lengths: Int[Tensor, "places texts"]


class TokenisedTexts:
    """The tokens of a list of texts at each place, concatenated: a long text does not make the others longer."""

    def __init__(self, texts: Sequence[str], wording: Wording, places: Collection[Place] = PLACES) -> None:
        """Tokenise the texts at these places, which include the first of PLACES; at other places they repeat the
        tokens of the first, which must not be read."""
        self._numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        self._of = self._numbers_of(texts)
        every = list(self._numbers)
        parts: list[tuple[list[np.ndarray], list[np.ndarray]]] = [([], []) for _ in PLACES]
        for begin in range(0, len(every), _TEXTS_AT_ONCE):
            for place, (flat, counts) in zip(PLACES, parts, strict=True):
                if place not in places:
                    continue
                tokens = wording.encode_all(every[begin : begin + _TEXTS_AT_ONCE], place)
                counts.append(np.fromiter(map(len, tokens), np.int64, len(tokens)))
                flat.append(np.fromiter(chain.from_iterable(tokens), np.int32, int(counts[-1].sum())))
        parts = [part if place in places else parts[0] for place, part in zip(PLACES, parts, strict=True)]
        self._flat = [np.concatenate([*flat, np.zeros(0, np.int32)]) for flat, _ in parts]
        self._counts = np.stack([np.concatenate([*counts, np.zeros(0, np.int64)]) for _, counts in parts])
        self._starts = self._counts.cumsum(1) - self._counts

    def __len__(self) -> int:
        return len(self._of)

    def among(self, texts: Sequence[str]) -> "TokenisedTexts":
        """Return some of these texts, in any order, without tokenising them again."""
        some = copy(self)
        some._of = self._numbers_of(texts)
        return some

    def _numbers_of(self, texts: Sequence[str]) -> np.ndarray:
        return np.fromiter((self._numbers[text] for text in texts), np.int64, len(texts))

    @property
    def lengths(self) -> np.ndarray:
        """Return how many tokens each text has: places × texts."""
        return self._counts[:, self._of]

    def single(self, place: Place) -> np.ndarray:
        """Return for each text its token at a place if it is a single one, otherwise -1."""
        number = PLACES.index(place)
        found = np.full(self._counts.shape[1], -1, np.int64)
        are_one = self._counts[number] == 1
        found[are_one] = self._flat[number][self._starts[number][are_one]]
        return found[self._of]

    def holds(self, token: int | None, place: Place) -> np.ndarray:
        """Return for each text whether it has a token at a place."""
        number = PLACES.index(place)
        at = np.zeros(0, np.int64) if token is None else np.flatnonzero(self._flat[number] == token)
        found = np.zeros(self._counts.shape[1], bool)
        found[np.searchsorted(self._starts[number] + self._counts[number], at, side="right")] = True
        return found[self._of]

    def lengths_alone(self, device: torch.device) -> Words:
        """Return the texts as words of which only the lengths are known, which takes little memory however long one
        is."""
        return Words(
            torch.zeros(len(PLACES), len(self), 0, dtype=torch.long, device=device),
            torch.from_numpy(self.lengths).to(device),
        )

    def words(self, device: torch.device, kept: np.ndarray | None = None) -> Words:
        """Return the texts, or those at the `kept` places of the list, padded into tensors."""
        of = self._of if kept is None else self._of[kept]
        lengths = self._counts[:, of]
        longest = int(lengths.max()) if lengths.size else 0
        ids = np.zeros((len(PLACES), len(of), longest), np.int64)
        columns = np.arange(longest)
        for number in range(len(PLACES)):
            for begin in range(0, len(of), _TEXTS_AT_ONCE):
                some = slice(begin, begin + _TEXTS_AT_ONCE)
                inside = columns < lengths[number, some, None]
                ids[number, some][inside] = self._flat[number][(self._starts[number, of[some], None] + columns)[inside]]
        return Words(torch.from_numpy(ids).to(device), torch.from_numpy(lengths).to(device))


_TEXTS_AT_ONCE = 2**14


def words_of(texts: Sequence[str], wording: Wording, device: torch.device) -> Words:
    """Return the tokens of all texts in both places."""
    return TokenisedTexts(texts, wording).words(device)


@dataclass(frozen=True)
class AnswerTokens:
    """What is at y for each pair of a batch, and which positions from there on are read."""

    ids: Int[Tensor, "pairs longest"]
    lengths: Int[Tensor, " pairs"]
    first_read: Int[Tensor, " pairs"]
    """How many positions after the question's own position the first read is."""
    reads: Int[Tensor, " pairs"]
    """How many positions are read in a row."""

    def of(self, chosen: Int[Tensor, " chosen"]) -> "AnswerTokens":
        """Return those of some of the pairs."""
        lengths = self.lengths[chosen]
        ids = self.ids[chosen][:, : int(lengths.max()) if len(lengths) else 0]
        return AnswerTokens(ids, lengths, self.first_read[chosen], self.reads[chosen])


@dataclass(frozen=True)
class StreamBatch:
    """What one stack reads for a batch of pairs; padding is on the right."""

    ids: Int[Tensor, "pairs positions"]
    prompt_tokens: Int[Tensor, "pairs positions"]
    """The row of the tuned vectors to use at a position; -1 for the LM's own word vector."""
    lengths: Int[Tensor, " pairs"]

    @property
    def attention_mask(self) -> Bool[Tensor, "pairs positions"]:
        """Return True at tokens, False at padding."""
        return torch.arange(self.ids.shape[1], device=self.ids.device) < self.lengths[:, None]


@dataclass(frozen=True)
class Batch:
    """A batch of (fact, prompt) pairs as an LM reads it, and the places where its answers are read off."""

    streams: Mapping[str, StreamBatch]
    read_pairs: Int[Tensor, " reads"]
    read_positions: Int[Tensor, " reads"]
    past: Past | None = None
    """The cached past that the pairs attend to before the tokens of the last stream, in which case the other streams
    are left out; None if these tokens are whole sentences."""
    branches: Bool[Tensor, "pairs positions positions"] | None = None
    """Which of its pair's tokens each token of the last stream attends to, itself included, if they are branches of a
    tree after a shared past; None if they are a sentence. Only LMs with a walk read trees."""

    def until(self, lengths: Int[Tensor, " pairs"]) -> "Batch":
        """Return only the first so many tokens of each pair, read at the first; for LMs with one stack."""
        ((name, stream),) = self.streams.items()
        within = torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]
        ids, rows = stream.ids[:, : within.shape[1]], stream.prompt_tokens[:, : within.shape[1]]
        cut = StreamBatch(ids.masked_fill(~within, 0), rows.masked_fill(~within, -1), lengths)
        return Batch({name: cut}, torch.arange(len(lengths), device=lengths.device), torch.zeros_like(lengths))

    def after(self, lengths: Int[Tensor, " pairs"], past: Past) -> "Batch":
        """Return the same without this many tokens at the start of each pair, which are its past; for LMs with one
        stack."""
        ((name, stream),) = self.streams.items()
        own = stream.lengths - lengths
        at = torch.arange(int(own.max()), device=lengths.device).expand(len(own), -1)
        columns, outside = at + lengths[:, None], at >= own[:, None]
        ids = _at(stream.ids, columns).masked_fill(outside, 0)
        rows = _at(stream.prompt_tokens, columns).masked_fill(outside, -1)
        read_positions = self.read_positions - lengths[self.read_pairs]
        return Batch({name: StreamBatch(ids, rows, own)}, self.read_pairs, read_positions, past)


class _StreamTable:
    """One stack's streams of all prompts, padded into tables."""

    def __init__(self, streams: Sequence[Stream], rows: TokenRows, mask: int | None, device: torch.device):
        self.left_ids, self.left_rows, self.left_lengths = _table([s.left for s in streams], rows, device)
        self.right_ids, self.right_rows, self.right_lengths = _table([s.right for s in streams], rows, device)
        self.has_x = torch.tensor([stream.x is not X.ABSENT for stream in streams], device=device)
        self.has_y = streams[0].y_at is not None
        self.y_at = torch.tensor([stream.y_at or 0 for stream in streams], device=device)
        self.y_after_x = torch.tensor([stream.y_after_x for stream in streams], device=device)
        self.mask = mask if any(stream.x is X.MASKED for stream in streams) else None

    def lengths(self, prompts: Int[Tensor, " pairs"], x_lengths: Int[Tensor, " pairs"]) -> Int[Tensor, " pairs"]:
        """Return the number of tokens of each pair."""
        return self.left_lengths[prompts] + x_lengths * self.has_x[prompts] + self.right_lengths[prompts]

    def batch(
        self, prompts: Int[Tensor, " pairs"], x_ids: Int[Tensor, "pairs longest"], x_lengths: Int[Tensor, " pairs"]
    ) -> StreamBatch:
        """Return the tokens of each pair: left, then x, then right."""
        lengths = self.lengths(prompts, x_lengths)
        x_from = self.left_lengths[prompts, None]
        x_until = x_from + (x_lengths * self.has_x[prompts])[:, None]
        at = torch.arange(int(lengths.max()), device=prompts.device).expand(len(prompts), -1)
        in_left, in_right = at < x_from, (at >= x_until) & (at < lengths[:, None])
        if self.mask is not None:
            x_ids = torch.full_like(x_ids, self.mask)
        ids = torch.where(at < x_until, _at(x_ids, at - x_from), 0)
        ids = torch.where(in_left, _at(self.left_ids[prompts], at), ids)
        ids = torch.where(in_right, _at(self.right_ids[prompts], at - x_until), ids)
        rows = torch.where(in_left, _at(self.left_rows[prompts], at), -1)
        rows = torch.where(in_right, _at(self.right_rows[prompts], at - x_until), rows)
        return StreamBatch(ids, rows, lengths)

    def with_answers(
        self, batch: StreamBatch, prompts: Int[Tensor, " pairs"], x_lengths: Int[Tensor, " pairs"], ys: AnswerTokens
    ) -> StreamBatch:
        """Return the batch with y's tokens put in at their places."""
        if not self.has_y:
            return batch
        lengths = batch.lengths + ys.lengths
        y_from = (self.y_at[prompts] + x_lengths * self.y_after_x[prompts])[:, None]
        y_until = y_from + ys.lengths[:, None]
        at = torch.arange(int(lengths.max()), device=prompts.device).expand(len(prompts), -1)
        source = torch.where(at < y_from, at, at - ys.lengths[:, None])
        in_y, outside = (at >= y_from) & (at < y_until), at >= lengths[:, None]
        ids = torch.where(in_y, _at(ys.ids, at - y_from), _at(batch.ids, source)).masked_fill(outside, 0)
        rows = _at(batch.prompt_tokens, source).masked_fill(in_y | outside, -1)
        return StreamBatch(ids, rows, lengths)


class QuestionTable:
    """The questions of all prompts of a mixture, ready to be combined with any x's."""

    def __init__(
        self,
        questions: Sequence[Question],
        x_places: Sequence[Place],
        rows: TokenRows,
        mask: int | None,
        device: torch.device,
    ) -> None:
        self._streams = {
            stack: _StreamTable([question.streams[stack] for question in questions], rows, mask, device)
            for stack in questions[0].streams
        }
        self._x_places = torch.tensor([PLACES.index(place) for place in x_places], device=device)
        self._read_at = torch.tensor([question.read_at for question in questions], device=device)
        self._read_after_x = torch.tensor([question.read_after_x for question in questions], device=device)
        self.reads_x = questions[0].reads_x
        self._last = next(reversed(self._streams.values()))
        self._after_x: Int[Tensor, " prompts"] | None = None
        if questions[0].reads_after_x:
            after = [len(tuple(one.streams.values())[-1].right) for one in questions]
            self._after_x = torch.tensor(after, device=device)

    def lengths(
        self, xs: Words, rows: Int[Tensor, " pairs"], prompts: Int[Tensor, " pairs"], *, answer: int = 0
    ) -> Int[Tensor, " pairs"]:
        """Return the number of tokens of each pair in its longest stack, with an answer of this many tokens at y."""
        x_lengths = xs.lengths[self._x_places[prompts], rows]
        each = [table.lengths(prompts, x_lengths) + answer * table.has_y for table in self._streams.values()]
        return torch.stack(each).amax(0)

    def first_reads(
        self, xs: Words, rows: Int[Tensor, " pairs"], prompts: Int[Tensor, " pairs"]
    ) -> Int[Tensor, " pairs"]:
        """Return the first position of each pair that is read."""
        x_lengths = xs.lengths[self._x_places[prompts], rows]
        return self._read_at[prompts] + x_lengths * self._read_after_x[prompts]

    def batch(self, xs: Words, rows: Int[Tensor, " pairs"], prompts: Int[Tensor, " pairs"]) -> Batch:
        """Return the batch of pairs (facts[i], prompts[i]), where a fact is named by the place of its x in `xs`."""
        places = self._x_places[prompts]
        x_ids, x_lengths = xs.ids[places, rows], xs.lengths[places, rows]
        streams = {stack: table.batch(prompts, x_ids, x_lengths) for stack, table in self._streams.items()}
        read_from = self.first_reads(xs, rows, prompts)
        pairs = torch.arange(len(prompts), device=prompts.device)
        if not self.reads_x and self._after_x is None:
            return Batch(streams, pairs, read_from)
        reads = self._reads(x_lengths, prompts)
        return Batch(streams, pairs.repeat_interleave(reads), ranges(read_from, reads))

    def most_reads(self, xs: Words) -> int:
        """Return the most positions that are read in one sentence."""
        after = 0 if self._after_x is None else int(self._after_x.max())
        return int(xs.lengths.max()) + after if self.reads_x else max(1, after)

    def _reads(self, x_lengths: Int[Tensor, " pairs"], prompts: Int[Tensor, " pairs"]) -> Int[Tensor, " pairs"]:
        """Return how many positions of each pair are read, where these are x's or those after it."""
        after = torch.zeros_like(x_lengths) if self._after_x is None else self._after_x[prompts]
        return x_lengths * self.reads_x + after

    def answer_batch(
        self, xs: Words, rows: Int[Tensor, " pairs"], prompts: Int[Tensor, " pairs"], ys: AnswerTokens
    ) -> Batch:
        """Return the batch of pairs with these tokens at y, read where `ys` says."""
        places = self._x_places[prompts]
        x_lengths = xs.lengths[places, rows]
        plain = self.batch(xs, rows, prompts)
        streams = {
            stack: table.with_answers(plain.streams[stack], prompts, x_lengths, ys)
            for stack, table in self._streams.items()
        }
        pairs = torch.arange(len(prompts), device=prompts.device)
        read_positions = ranges(plain.read_positions + ys.first_read, ys.reads)
        return Batch(streams, pairs.repeat_interleave(ys.reads), read_positions)

    def x_targets(
        self, xs: Words, rows: Int[Tensor, " pairs"], prompts: Int[Tensor, " pairs"]
    ) -> Int[Tensor, " reads"]:
        """Return the tokens of x, and those after it that are read, in the order in which `batch` reads them."""
        places = self._x_places[prompts]
        ids, x_lengths = xs.ids[places, rows], xs.lengths[places, rows]
        of_x = (x_lengths * self.reads_x)[:, None]
        at = torch.arange(self.most_reads(xs), device=ids.device).expand(len(ids), -1)
        targets = torch.where(at < of_x, _at(ids, at), _at(self._last.right_ids[prompts], at - of_x))
        return targets[at < self._reads(x_lengths, prompts)[:, None]]


def _table(
    stretches: Sequence[Sequence[Token]], token_rows: TokenRows, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    longest = max(map(len, stretches), default=0)
    ids = torch.zeros(len(stretches), longest, dtype=torch.long)
    rows = torch.full((len(stretches), longest), -1)
    for number, (stretch, of_prompt) in enumerate(zip(stretches, token_rows, strict=True)):
        for place, token in enumerate(stretch):
            ids[number, place] = token.id
            if token.prompt_token >= 0:
                rows[number, place] = of_prompt[token.prompt_token]
    lengths = torch.tensor([len(stretch) for stretch in stretches], dtype=torch.long)
    return ids.to(device), rows.to(device), lengths.to(device)


def _at(table: Tensor, columns: Tensor) -> Tensor:
    """Return table[i, columns[i, j]]; arbitrary for columns outside the table."""
    if table.shape[1] == 0:
        return torch.zeros_like(columns)
    return table.gather(1, columns.clamp(0, table.shape[1] - 1))
