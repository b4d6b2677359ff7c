"""Shared prefixes of sentences are read once.

Nothing that a causal LM computes for a token depends on what comes after it. So the words before x are read once for
all facts, and get the gradients of all of them; x, if no tuned word comes before it, is read once for all prompts, and
only once during the whole tuning, because its keys and values never change. While nothing is tuned, as in an
evaluation, the words before x are read only once, too. Everything after them continues from the cached keys and values
(`lms/walks/past.py`). An opening that prompts share is read once for all facts and prompts, and an x right behind it
once for all prompts; gradients go through x's keys and values into the opening.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from askwell.lms.batches import QuestionTable, TokenRows, Words
from askwell.lms.frozen import FrozenLM
from askwell.lms.machine import memory_of
from askwell.lms.walks.past import Past, Paths
from askwell.prompts.prompt import Prompt

T = TypeVar("T")
# The keys and values of all x's of a run may take this fraction of the machine's memory.
_PART_OF_MEMORY = 1 / 8
# A forward pass reads about this many tokens at once.
_TOKENS_AT_ONCE = 2048


SharedPrefix = tuple[Int[Tensor, " some"], Int[Tensor, " some"], Past]
"""Some pairs, by their places among those asked for; how many tokens of each one's sentence are in its past; and their
pasts, rows of one table."""


@dataclass(frozen=True)
class _SharedOpening:
    """What several prompts begin with, the vectors included."""

    number: int
    prompt: int
    """The first of them."""
    length: int
    """How many tokens it has, with those that are not tuned."""


def read_again(read: Callable[..., T], *, when: bool) -> Callable[..., T]:
    """Return the function as one that keeps nothing for gradients and is called once more when they are computed."""
    return partial(checkpoint, read, use_reentrant=False, preserve_rng_state=False) if when else read


class SharedPrefixes:
    """The shared prefixes of a mixture's sentences, which end with x or with the words before it."""

    def __init__(
        self,
        lm: FrozenLM,
        prompts: Sequence[Prompt],
        table: QuestionTable,
        x_places: Int[Tensor, " prompts"],
        rows: TokenRows,
    ) -> None:
        self._lm, self._table, self._x_places = lm, table, x_places
        lefts = [next(iter(prompt.question.streams.values())).left for prompt in prompts]
        self._left_lengths = torch.tensor([len(left) for left in lefts], device=lm.device)
        kinds: dict[Any, int] = {}
        openings: dict[Any, _SharedOpening] = {}
        numbers, self._openings = [], []
        for number, (prompt, left, place) in enumerate(zip(prompts, lefts, x_places.tolist(), strict=True)):
            tuned_at = [at for at, token in enumerate(left) if token.prompt_token >= 0]
            opening = None
            # A model that runs as a whole returns its cache with the past in it, so it cannot continue twice.
            if prompt.shared_tokens and lm.walk is not None:
                until = tuned_at[prompt.shared_tokens - 1] + 1
                key = rows[number][: prompt.shared_tokens]
                opening = openings.setdefault(key, _SharedOpening(len(openings), number, until))
            self._openings.append(opening)
            if opening is not None and opening.length == len(left):
                numbers.append(kinds.setdefault((opening, place), len(kinds)))
            elif tuned_at:
                numbers.append(-1 if opening is None else -2 - opening.number)
            else:
                numbers.append(kinds.setdefault((left, place), len(kinds)))
        # Prompts of one kind are the same up to the end of x; those of negative kinds have tuned words of their own
        # before x, after no shared opening or after one.
        self._kinds = torch.tensor(numbers, device=lm.device)
        self._first_of_kind = [numbers.index(kind) for kind in range(len(kinds))]
        self._constant = [kind for kind, first in enumerate(self._first_of_kind) if self._openings[first] is None]
        self._kept: list[tuple[Words, dict[int, Past]]] = []
        self._unchanged: dict[Any, Past] | None = None
        """What was read before x, while nothing that is tuned changes; None if it may change."""

    def least(self, xs: Words) -> int:
        """Return the fewest tokens that a sentence of these x's has in common with others."""
        shortest = xs.lengths.amin(1)[self._x_places]
        return int(torch.where(self._kinds < 0, self._left_lengths, self._left_lengths + shortest - 1).min())

    @contextmanager
    def keeping(self, *many_xs: Words, unchanged: bool = False) -> Generator[None]:
        """Cache, inside the block, what is constant for these x's, as far as there is memory for it; if nothing that is
        tuned changes inside the block, also what comes before x."""
        before, left_over = (self._kept, self._unchanged), memory_limit(self._lm.device)
        self._kept = list(self._kept)
        self._unchanged = {} if unchanged else None
        try:
            for xs in many_xs:
                size = self._bytes_of(xs)
                if size and size <= left_over:
                    left_over -= size
                    every = torch.arange(xs.lengths.shape[1], device=self._lm.device)
                    self._kept.append((xs, {kind: self._read_xs(xs, every, kind) for kind in self._constant}))
            yield
        finally:
            self._kept, self._unchanged = before

    def of(
        self,
        vectors: Tensor,
        deltas: Any,
        xs: Words,
        texts: Int[Tensor, " pairs"],
        prompts: Int[Tensor, " pairs"],
        first_reads: Int[Tensor, " pairs"],
        *,
        recompute: bool = False,
    ) -> Iterator[SharedPrefix]:
        """Yield all pairs with their pasts, grouped by table; a token that is read is never in the past."""
        kinds = self._kinds[prompts]
        known = {} if self._unchanged is None or torch.is_grad_enabled() else self._unchanged
        kept = partial(read_again(self._lm.kept, when=recompute), vectors=vectors, deltas=deltas)
        for kind in kinds.unique().tolist():
            pairs = (kinds == kind).nonzero()[:, 0]
            lengths = self._left_lengths[prompts[pairs]]
            opening = self._openings[int(prompts[pairs[0]])]
            if kind >= 0:
                lengths = lengths + xs.lengths[self._x_places[prompts[pairs]], texts[pairs]]
            if kind >= 0 and opening is None:
                past, place = self._of_xs(xs, texts[pairs], kind)
            elif kind >= 0:
                asked, place = texts[pairs].unique(return_inverse=True)
                past = self._begun(xs, asked, torch.full_like(asked, self._first_of_kind[kind]), kept, known)
            else:  # words before x, which are the same for all x's
                asked, place = prompts[pairs].unique(return_inverse=True)
                name = tuple(asked.tolist())
                if name not in known:
                    known[name] = self._begun(xs, None, asked, kept, known)
                past = known[name]
            lengths = torch.minimum(lengths, first_reads[pairs])
            paths = Paths(past.paths.rows[place], lengths)
            yield pairs, lengths, Past(past.kept, paths)

    def _begun(
        self,
        xs: Words,
        texts: Int[Tensor, " asked"] | None,
        prompts: Int[Tensor, " asked"],
        kept: Callable[..., Past],
        known: dict[Any, Past],
    ) -> Past:
        """Read what comes before x under some prompts, or with these x's up to their ends; a shared opening is read
        unless it is known."""
        until = self._left_lengths[prompts]
        of_xs = torch.zeros_like(prompts) if texts is None else texts
        if texts is not None:
            until = until + xs.lengths[self._x_places[prompts], texts]
        begun, opening = self._table.batch(xs, of_xs, prompts).until(until), self._openings[int(prompts[0])]
        if opening is None:
            return kept(begun)
        if opening not in known:
            first = torch.tensor([opening.prompt], device=self._lm.device)
            whole = self._table.batch(xs, torch.zeros_like(first), first)
            known[opening] = kept(whole.until(torch.full_like(first, opening.length)))
        before = known[opening].of(torch.zeros_like(prompts))
        begun = replace(begun, read_positions=before.paths.lengths)  # read at its first own token
        return before.with_own(kept(begun.after(before.paths.lengths, before)))

    def _of_xs(self, xs: Words, texts: Int[Tensor, " pairs"], kind: int) -> tuple[Past, Int[Tensor, " pairs"]]:
        """Return the pasts of x's, and which of them belongs to each pair."""
        for of_xs, by_kind in self._kept:
            if of_xs is xs:
                return by_kind[kind], texts
        asked, place = texts.unique(return_inverse=True)
        return self._read_xs(xs, asked, kind), place

    @torch.no_grad()
    def _read_xs(self, xs: Words, texts: Int[Tensor, " texts"], kind: int) -> Past:
        """Compute the keys and values of everything up to the end of each x, which are constant."""
        prompts = torch.full_like(texts, self._first_of_kind[kind])
        lengths = self._left_lengths[prompts] + xs.lengths[self._x_places[prompts], texts]
        nothing = torch.empty(0, self._lm.embedding_size, dtype=self._lm.parameter_dtype, device=self._lm.device)
        order, parts = lengths.argsort(stable=True), []
        for chosen in order.split(max(1, _TOKENS_AT_ONCE // int(lengths.max()))):
            batch = self._table.batch(xs, texts[chosen], prompts[chosen]).until(lengths[chosen])
            parts.append(self._lm.kept(batch, nothing))
        return Past.joined(parts).of(order.argsort())

    def _bytes_of(self, xs: Words) -> int:
        """Return how many bytes the keys and values of all x's take, for all kinds of prompts."""
        rows = 0
        for first in (self._first_of_kind[kind] for kind in self._constant):
            rows += int((self._left_lengths[first] + xs.lengths[self._x_places[first]]).sum())
        return rows * self._lm.bytes_of_kept_row


def memory_limit(device: torch.device) -> int:
    """Return how many bytes of keys and values a run may keep: a fraction of the memory of the machine or its GPU."""
    memory = memory_of(device)
    return int((8 * 2**30 if memory is None else memory.total) * _PART_OF_MEMORY)
