"""Answers that are one token of the LM: all of them, or those among candidates.

Every prompt gives a distribution over words; they are combined into p(y | x, r), a mixture or a product of experts.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.answers import listed
from askwell.answers.candidates import Candidates
from askwell.answers.encode import ONE_TOKEN
from askwell.answers.listed import ListedAnswers, best_first
from askwell.answers.reply import Replies
from askwell.answers.strategy import BatchNotes
from askwell.errors import NothingLeft
from askwell.lms.batches import Words
from askwell.prompts.prompt_set import PromptSet

# Each x takes prompts × words numbers while it is answered, so that every answer comes with each prompt's probability.
# Few at a time, so that the first answers come soon and memory does not grow with the number of x's.
_NUMBERS_OF_ANSWERS = 2**22


class OneTokenAnswers(ListedAnswers):
    """The words that are one token of the LM, all or those among candidates."""

    def __init__(self, prompts: PromptSet, candidates: Candidates | None = None) -> None:
        super().__init__(prompts, ONE_TOKEN, candidates)
        words = prompts.token_words
        self.is_closed, self.count, self._allowed = candidates is not None, words.count, None
        if candidates is not None:
            numbers = words.numbers_of(candidates.words)
            allowed = sorted({number for number in numbers if number is not None})
            if not allowed:
                raise NothingLeft("candidates", {"word is not one token of the LM": len(candidates.words)})
            of_words = zip(candidates.words, numbers, strict=True)
            self.candidates_left_out = tuple(word for word, number in of_words if number is None)
            self._allowed = torch.tensor(allowed, device=prompts.lm.device)
            self._place = {number: place for place, number in enumerate(allowed)}
            self.count = len(allowed)

    @property
    def vocabulary(self) -> str:
        """The answers that golds are ranked among, in words."""
        if self.candidates is None:
            return f"all {self.count} one-token answers of {self.prompts.lm.identity.name}"
        return f"{self.count} candidates of {self.candidates.name}"

    @property
    def asked_at_once(self) -> int:
        """How many facts can be asked at once while the probabilities of all answers are held."""
        return max(1, listed.NUMBERS_AT_ONCE // self.prompts.token_words.count)

    def _find(self, ys: Sequence[str]) -> list[int | None]:
        numbers = self.prompts.token_words.numbers_of(ys)
        return numbers if self._allowed is None else [None if n is None else self._place.get(n) for n in numbers]

    def word(self, number: int) -> str:
        """Return the surface word of an answer."""
        return self.prompts.token_words.word(number if self._allowed is None else int(self._allowed[number]))

    def _notes(self, fact_count: int) -> BatchNotes:
        return BatchNotes(self.prompts, fact_count, self.prompts.token_words.count, self._allowed)

    # ── log p(y | x, r) of all answers ────────────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def log_probs(
        self,
        xs: Words,
        rows: Int[Tensor, " facts"],
        notes: BatchNotes | None = None,
        log_weights: Float[Tensor, " prompts"] | None = None,
    ) -> Float[Tensor, "facts answers"]:
        """Return log p(y | x, r) of all answers. At most facts × answers numbers are held at once."""
        if self.prompts.is_product or log_weights is not None:
            static = self._static_log_weights() if log_weights is None else log_weights
            each = self._one_by_one(xs, rows, notes)
            return self._of_allowed(self.combine_one_by_one(static.expand(len(rows), -1), each))
        if self.is_closed and "answers" in self.prompts.weighting.reads:  # certainty is that about the candidates
            weights = self._log_weights(xs, rows, self.by_prompt(xs, rows))
        else:
            weights = self.prompts.log_weights_for(xs, rows)
        total = self._summed(xs, rows, weights.exp(), notes)
        # Probabilities that are tiny beside the largest have lost digits; they are summed again, as logarithms.
        lossy = (total < torch.finfo(total.dtype).tiny ** 0.75).any(1)
        found = total.log_()
        if lossy.any():
            found[lossy] = self._of_allowed(self.combine_one_by_one(weights[lossy], self._one_by_one(xs, rows[lossy])))
        return found

    def by_prompt(self, xs: Words, rows: Int[Tensor, " facts"]) -> Float[Tensor, "facts prompts answers"]:
        """Return log p(y | t, x) of all answers under every prompt, without gradients."""
        every = range(len(self.prompts.prompts))
        return torch.stack([self._of_allowed(self.prompts.word_log_probs(xs, rows, t)) for t in every], dim=1)

    @torch.no_grad()
    def combine_one_by_one(
        self, log_weights: Float[Tensor, "facts prompts"], by_prompt: Iterable[Float[Tensor, "facts words"]]
    ) -> Float[Tensor, "facts words"]:
        """Return log p(y | x, r) of all words from the prompts' log-probabilities, which are taken one by one."""
        prompts = self.prompts
        shape = (len(log_weights), prompts.token_words.count)
        like: Any = {"dtype": prompts.weight_logits.dtype, "device": prompts.lm.device}
        if prompts.is_product:
            scores = torch.zeros(shape, **like)
            for weight, own in zip(prompts.weights, by_prompt, strict=True):
                # An answer for which one prompt has no token is not one of the product's, even if that prompt weighs 0.
                scores += torch.where(own == -torch.inf, -torch.inf, weight * own.nan_to_num(neginf=0.0))
            return scores.log_softmax(1)
        total = torch.full(shape, -torch.inf, **like)
        for log_weight, own in zip(log_weights.T, by_prompt, strict=True):
            total = torch.logaddexp(total, own + log_weight[:, None])
        return total

    def _of_allowed(self, of_words: Float[Tensor, "facts words"]) -> Float[Tensor, "facts answers"]:
        return of_words if self._allowed is None else of_words[:, self._allowed]

    def _one_by_one(
        self, xs: Words, rows: Int[Tensor, " facts"], notes: BatchNotes | None = None
    ) -> Iterator[Float[Tensor, "facts words"]]:
        every = torch.arange(len(rows), device=self.prompts.lm.device)
        for prompt in range(len(self.prompts.prompts)):
            own = self.prompts.word_log_probs(xs, rows, prompt)
            if notes is not None:
                weights = self.prompts.weights[prompt].expand(len(every))
                notes.note(every, torch.full_like(every, prompt), weights, own.exp())
            yield own

    def _summed(
        self,
        xs: Words,
        rows: Int[Tensor, " facts"],
        weights: Float[Tensor, "facts prompts"],
        notes: BatchNotes | None,
    ) -> Float[Tensor, "facts answers"]:
        """Return p(y | x, r): the prompts' distributions, weighted and summed as probabilities, as the batches come."""
        words, pairs = self.prompts.token_words, self.prompts.pairs
        like: Any = {"dtype": self.prompts.weight_logits.dtype, "device": self.prompts.lm.device}
        total = torch.zeros(len(rows), self.count, **like)
        tokens = words.tokens if self._allowed is None else words.tokens[:, self._allowed]
        takes_all = len(words.places) == 1 and self._allowed is None
        answered_at = [(of_place >= 0).nonzero()[:, 0] for of_place in tokens]
        columns_of = [(answered, of_place[answered]) for answered, of_place in zip(answered_at, tokens, strict=True)]
        for at, prompts, probabilities in pairs.distributions(self.prompts.tuned, xs, rows):
            of_pairs = weights[at, prompts]
            if notes is not None:
                notes.note(at, prompts, of_pairs, self.prompts.of_words(probabilities, prompts, 0.0))
            probabilities.mul_(of_pairs[:, None])
            places = pairs.y_places[prompts].tolist()
            # Row by row: index_add_ would write out an index as large as the probabilities.
            for row, (fact, place) in enumerate(zip(at.tolist(), places, strict=True)):
                if takes_all:
                    total[fact].add_(probabilities[row])
                else:
                    answered, spelt = columns_of[place]
                    total[fact, answered] += probabilities[row, spelt]
        return total

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, xs: Sequence[str], top: int = 10) -> Iterator[Replies]:
        """Yield the most probable answers for each x, best first."""
        self.check_askable(xs)
        prompts = torch.arange(len(self.prompts.prompts), device=self.prompts.lm.device)
        size = max(1, _NUMBERS_OF_ANSWERS // (self.prompts.token_words.count * len(prompts)))
        for words, rows in self._in_batches(xs, size):
            pairs, asked = rows.repeat_interleave(len(prompts)), prompts.repeat(len(rows))
            of_pairs = self.prompts.pairs.pair_log_probs(self.prompts.tuned, words, pairs, asked)
            yield from self.replies(words, rows, of_pairs.view(len(rows), len(prompts), -1), top)

    @torch.no_grad()
    def replies(
        self, words: Words, rows: Int[Tensor, " xs"], log_probs: Float[Tensor, "xs prompts vocabulary"], top: int
    ) -> Iterator[Replies]:
        """Yield the most probable answers for the x's in these rows, from every prompt's log-probabilities of
        tokens."""
        prompts = torch.arange(log_probs.shape[1], device=rows.device).repeat(len(rows))
        by_prompt = self.prompts.of_words(log_probs.flatten(0, 1), prompts, -torch.inf).unflatten(0, (len(rows), -1))
        allowed = self._askable
        of_answers = by_prompt[..., allowed] if self.is_closed else log_probs
        combined = self.combine_one_by_one(self._log_weights(words, rows, of_answers), by_prompt.unbind(1))
        combined = combined[:, allowed]
        if self.is_closed:  # nothing else can be answered, so probabilities sum to one
            combined = combined.log_softmax(1)
            by_prompt = by_prompt - by_prompt[..., allowed].logsumexp(2, keepdim=True)
        places = best_first(combined, min(top, combined.shape[1]))
        word = self.prompts.token_words.word
        yield from self._replies(allowed[places], combined.gather(1, places), by_prompt, word)

    @property
    def _askable(self) -> Int[Tensor, " answers"]:
        """The words that can be given: no special tokens."""
        return self.prompts.token_words.askable if self._allowed is None else self._allowed

    def _given(self) -> Int[Tensor, " answers"]:
        return self._askable if self._allowed is None else super()._given()
