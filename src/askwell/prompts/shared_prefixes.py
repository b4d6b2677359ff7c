"""Shared prefixes of sentences are read once.

Nothing that a causal LM computes for a token depends on what comes after it. So the words before x are read once for
all facts, and get the gradients of all of them; x, if no tuned word comes before it, is read once for all prompts, and
only once during the whole tuning, because its keys and values never change. Everything after them continues from the
cached keys and values (`lms/walks/past.py`).
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from askwell.lms.batches import QuestionTable, Words
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


def read_again(read: Callable[..., T], *, when: bool) -> Callable[..., T]:
    """Return the function as one that keeps nothing for gradients and is called once more when they are computed."""
    return partial(checkpoint, read, use_reentrant=False, preserve_rng_state=False) if when else read


class SharedPrefixes:
    """The shared prefixes of a mixture's sentences, which end with x or with the words before it."""

    def __init__(
        self, lm: FrozenLM, prompts: Sequence[Prompt], table: QuestionTable, x_places: Int[Tensor, " prompts"]
    ) -> None:
        self._lm, self._table, self._x_places = lm, table, x_places
        lefts = [next(iter(prompt.question.streams.values())).left for prompt in prompts]
        self._left_lengths = torch.tensor([len(left) for left in lefts], device=lm.device)
        kinds: dict[Any, int] = {}
        numbers = []
        for left, place in zip(lefts, x_places.tolist(), strict=True):
            is_tuned = any(token.prompt_token >= 0 for token in left)
            numbers.append(-1 if is_tuned else kinds.setdefault((left, place), len(kinds)))
        # Prompts of one kind are the same up to the end of x; those of kind -1 have tuned words before x.
        self._kinds = torch.tensor(numbers, device=lm.device)
        self._first_of_kind = [numbers.index(kind) for kind in range(len(kinds))]
        self._kept: list[tuple[Words, dict[int, Past]]] = []

    def least(self, xs: Words) -> int:
        """Return the fewest tokens that a sentence of these x's has in common with others."""
        shortest = xs.lengths.amin(1)[self._x_places]
        return int(torch.where(self._kinds < 0, self._left_lengths, self._left_lengths + shortest - 1).min())

    @contextmanager
    def keeping(self, *many_xs: Words) -> Generator[None]:
        """Cache, inside the block, what is constant for these x's, as far as there is memory for it."""
        before, left_over = self._kept, memory_limit(self._lm.device)
        self._kept = list(before)
        try:
            for xs in many_xs:
                size = self._bytes_of(xs)
                if size and size <= left_over:
                    left_over -= size
                    every = torch.arange(xs.lengths.shape[1], device=self._lm.device)
                    self._kept.append(
                        (xs, {kind: self._read_xs(xs, every, kind) for kind in range(len(self._first_of_kind))})
                    )
            yield
        finally:
            self._kept = before

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
        for kind in kinds.unique().tolist():
            pairs = (kinds == kind).nonzero()[:, 0]
            lengths = self._left_lengths[prompts[pairs]]
            if kind < 0:
                asked, place = prompts[pairs].unique(return_inverse=True)
                past = self._read_lefts(vectors, deltas, xs, asked, recompute=recompute)
            else:
                lengths = lengths + xs.lengths[self._x_places[prompts[pairs]], texts[pairs]]
                past, place = self._of_xs(xs, texts[pairs], kind)
            lengths = torch.minimum(lengths, first_reads[pairs])
            paths = Paths(past.paths.rows[place], lengths)
            yield pairs, lengths, Past(past.kept, paths)

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

    def _read_lefts(self, vectors: Tensor, deltas: Any, xs: Words, prompts: Tensor, *, recompute: bool) -> Past:
        """Compute the keys and values of the words before x, with gradients."""
        whole = self._table.batch(xs, torch.zeros_like(prompts), prompts)
        return read_again(self._lm.kept, when=recompute)(whole.until(self._left_lengths[prompts]), vectors, deltas)

    def _bytes_of(self, xs: Words) -> int:
        """Return how many bytes the keys and values of all x's take, for all kinds of prompts."""
        rows = 0
        for first in self._first_of_kind:
            rows += int((self._left_lengths[first] + xs.lengths[self._x_places[first]]).sum())
        return rows * self._lm.bytes_of_kept_row


def memory_limit(device: torch.device) -> int:
    """Return how many bytes of keys and values a run may keep: a fraction of the memory of the machine or its GPU."""
    memory = memory_of(device)
    return int((8 * 2**30 if memory is None else memory.total) * _PART_OF_MEMORY)
