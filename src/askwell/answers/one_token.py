"""Answers that are one token of the LM: all of them, or those among candidates.

Every prompt gives a distribution over words; they are combined into p(y | x, r), a mixture or a product of experts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.answers import listed
from askwell.answers.candidates import Candidates
from askwell.answers.listed import ListedAnswers, best_first
from askwell.answers.reply import Replies
from askwell.answers.strategy import Answers, BatchNotes
from askwell.errors import NothingLeft
from askwell.lms.batches import Words, words_of
from askwell.prompts.pairs import PairReader, Tuned
from askwell.prompts.prompt import token_rows
from askwell.prompts.prompt_set import PromptSet
from askwell.specs.mixture_spec import ONE_TOKEN

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


# ── several mixtures of one LM ────────────────────────────────────────────────────────────────────────────────────────

# Each x takes prompts × vocabulary numbers while it is answered.
_NUMBERS_AT_ONCE = 2**25


@dataclass(frozen=True)
class AskedX:
    """A way of answering, and the x to ask about."""

    answers: Answers
    x: str
    top: int = 10


class AskedTogether:
    """Prompts of one LM that are read in common batches, which fills a forward pass better. None of them may be tuned
    afterwards.

    Answers of one token are read off at one place; others are asked one mixture at a time.
    """

    def __init__(self, each: Sequence[Answers]) -> None:
        self._lm = each[0].prompts.lm
        joint = [answers.prompts for answers in each if isinstance(answers, OneTokenAnswers)]
        prompts = [prompt for of_mixture in joint for prompt in of_mixture.prompts]
        ends = accumulate((len(of_mixture.vectors) for of_mixture in joint), initial=0)
        rows = [token_rows(one.prompts, first) for one, first in zip(joint, ends, strict=False)]
        self._reader = PairReader(self._lm, prompts, reads_x=False, rows=[*chain.from_iterable(rows)])
        firsts = accumulate((len(of_mixture.prompts) for of_mixture in joint), initial=0)
        self._first = dict(zip(joint, firsts, strict=False))
        if joint:
            self._tuned = _joined(joint, len(prompts))

    def ask(self, questions: Sequence[AskedX]) -> list[Replies]:
        """Return the most probable answers to each question, best first. Every x must be one that can be asked."""
        found: dict[int, Replies] = {}
        some: list[int] = []
        prompts = 0
        for number, question in enumerate(questions):
            if question.answers.prompts in self._first:
                added = len(question.answers.prompts.prompts)
                if some and (prompts + added) * self._lm.vocabulary_size > _NUMBERS_AT_ONCE:
                    found |= self._read(questions, some)
                    some, prompts = [], 0
                some.append(number)
                prompts += added
        if some:
            found |= self._read(questions, some)
        alone = [number for number in range(len(questions)) if number not in found]
        for (answers, top), numbers in _by_mixture(questions, alone).items():
            found |= zip(numbers, answers.ask([questions[number].x for number in numbers], top), strict=True)
        return [found[number] for number in range(len(questions))]

    def _read(self, questions: Sequence[AskedX], numbers: Sequence[int]) -> dict[int, Replies]:
        """Answer the questions of these numbers, all of which are about answers of one token."""
        device, mixtures = self._lm.device, [questions[number].answers.prompts for number in numbers]
        words = words_of([questions[number].x for number in numbers], self._lm.wording, device)
        prompts = [torch.arange(len(one.prompts), device=device) + self._first[one] for one in mixtures]
        counts = [len(one.prompts) for one in mixtures]
        rows = torch.arange(len(numbers), device=device).repeat_interleave(torch.tensor(counts, device=device))
        of_pairs = self._reader.pair_log_probs(self._tuned, words, rows, torch.cat(prompts)).split(counts)
        row_of = {number: row for row, number in enumerate(numbers)}
        found: dict[int, Replies] = {}
        for (answers, top), some in _by_mixture(questions, numbers).items():
            assert isinstance(answers, OneTokenAnswers)
            asked = [row_of[number] for number in some]
            log_probs = torch.stack([of_pairs[row] for row in asked])
            found |= zip(some, answers.replies(words, torch.tensor(asked, device=device), log_probs, top), strict=True)
        return found


def _by_mixture(questions: Sequence[AskedX], numbers: Sequence[int]) -> dict[tuple[Answers, int], list[int]]:
    groups: dict[tuple[Answers, int], list[int]] = {}
    for number in numbers:
        groups.setdefault((questions[number].answers, questions[number].top), []).append(number)
    return groups


def _joined(each: Sequence[PromptSet], prompts: int) -> Tuned:
    """Return the parameters of all mixtures as those of one; what a shallow one adds to deeper layers is 0."""

    def delta(of_mixture: PromptSet, stack: str, layer: int, width: int) -> Tensor:
        deltas = of_mixture.layer_deltas
        return deltas[stack][layer].detach() if deltas else of_mixture.vectors.new_zeros(len(of_mixture.vectors), width)

    lm, deltas = each[0].lm, None
    if any(of_mixture.layer_deltas for of_mixture in each):
        deltas = {
            name: [
                torch.cat([delta(of_mixture, name, layer, stack.width) for of_mixture in each])
                for layer in range(stack.layers)
            ]
            for name, stack in lm.stacks.items()
        }
    vectors = torch.cat([of_mixture.vectors.detach() for of_mixture in each])
    return Tuned(vectors, deltas, torch.arange(prompts, device=lm.device))
