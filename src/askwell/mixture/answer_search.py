"""The most probable answers of any length under a mixture, and all that are more probable than a given one.

Prompts that need other forms of a word (" Paris", "Paris") spell the same answer in other tokens. Prompts of one form
are searched together. An answer of the whole mixture has at least the n-th part of its probability from one of n
forms, so what is found form by form, with that much less to look for, holds all that matter; it is then scored under
all prompts.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.lms.batches import PLACES, Words, words_of
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Place
from askwell.mixture.search import Continuations, Prefix, SearchLimits, SearchResult, search_answers

if TYPE_CHECKING:
    from askwell.mixture.mixture import Mixture


@dataclass(frozen=True)
class LikelyAnswer:
    """An answer and its probability."""

    text: str
    log_probability: float
    by_prompt: tuple[float, ...]
    """log p(y | t, x) of each prompt; -inf for prompts that were dropped."""


@dataclass(frozen=True)
class LikelyAnswers:
    """The answers to one question that were found, the most probable first."""

    answers: tuple[LikelyAnswer, ...]
    is_exact: bool
    """Whether no other answer can be more probable than the last of them, or than the one that was looked for."""
    unseen: float = -math.inf
    """The log-probability of anything that was not found is at most this."""


class AnswerSearch:
    """Searches the answers of one mixture, as it is now."""

    def __init__(self, mixture: "Mixture", limits: SearchLimits, log_lengths: Float[Tensor, " lengths"] | None) -> None:
        self._mixture, self._limits, self._tuned = mixture, limits, mixture.tuned
        self._log_lengths = log_lengths if mixture.long_answers.fills_masks else None
        places = mixture.pairs.y_places[self._tuned.kept]
        self._forms = {
            PLACES[number]: self._tuned.kept[places == number] for number in sorted({*places.tolist()})
        }  # fmt: skip

    @torch.no_grad()
    def best(
        self,
        xs: Words,
        questions: Int[Tensor, " questions"],
        counts: Callable[[int, str], bool] | None = None,
        log_weights: Float[Tensor, "questions prompts"] | None = None,
    ) -> list[LikelyAnswers]:
        """For each question (the number of its x) its most probable answers; those for which `counts` is false come
        on top of the number that is looked for. The prompts' weights are the mixture's own unless they are given."""
        found = self._found(xs, questions, None, counts, log_weights)
        if len(self._forms) == 1:
            return found
        # What the forms find best each by itself bounds from below what the mixture finds best.
        wanted = [self._until_enough(number, of, counts) for number, of in enumerate(found)]
        least = [-math.inf if of is None else of.answers[-1].log_probability for of in wanted]
        again = self._found(xs, questions, least, lambda _question, _text: False, log_weights)
        return [self._until_enough(number, of, counts) or of for number, of in enumerate(again)]

    def _until_enough(
        self, number: int, found: LikelyAnswers, counts: Callable[[int, str], bool] | None
    ) -> LikelyAnswers | None:
        """The answers up to the last of as many as are looked for; None where fewer were found."""
        counted = [place for place, answer in enumerate(found.answers) if counts is None or counts(number, answer.text)]
        if len(counted) < self._limits.answers:
            return None
        kept = found.answers[: counted[self._limits.answers - 1] + 1]
        dropped = (answer.log_probability for answer in found.answers[len(kept) :])
        return LikelyAnswers(kept, found.is_exact, max([found.unseen, *dropped]))

    @torch.no_grad()
    def at_least(
        self,
        xs: Words,
        questions: Int[Tensor, " questions"],
        least: Sequence[float],
        counts: Callable[[int, str], bool] | None = None,
    ) -> list[LikelyAnswers]:
        """For each question all answers whose log-probability is at least that given, up to the limit of those that
        `counts` says count."""
        return [
            LikelyAnswers(tuple(a for a in of.answers if a.log_probability >= least[number]), of.is_exact, of.unseen)
            for number, of in enumerate(self._found(xs, questions, least, counts))
        ]

    def _found(
        self,
        xs: Words,
        questions: Tensor,
        least: Sequence[float] | None,
        counts: Callable[[int, str], bool] | None,
        log_weights: Tensor | None = None,
    ) -> list[LikelyAnswers]:
        mixture, forms = self._mixture, len(self._forms)
        if log_weights is None:
            log_p_x = mixture.log_p_x(xs, questions) if mixture.weighting.reads_x else None
            log_weights = mixture.log_weights(len(questions), log_p_x)
        log_weights = log_weights.double()
        results: list[list[SearchResult]] = [[] for _ in questions]
        for place, prompts in self._forms.items():
            roots = [
                [
                    Prefix(number, (), log_weights[number, prompts] + log_length, length)
                    for length, log_length in self._lengths()
                ]
                for number in range(len(questions))
            ]

            def open_(prefixes: Sequence[Prefix], prompts: Tensor = prompts) -> Continuations:
                return mixture.long_answers.continuations(self._tuned, prompts, xs, questions, prefixes)

            sought = None if least is None else [one - math.log(forms) for one in least]
            found = search_answers(roots, open_, text_of(mixture.lm, place), self._limits, least=sought, counts=counts)
            for number, result in enumerate(found):
                results[number].append(result)
        return [self._together(xs, questions, number, log_weights, of) for number, of in enumerate(results)]

    def _lengths(self) -> list[tuple[int | None, float]]:
        if not self._mixture.long_answers.fills_masks:
            return [(None, 0.0)]
        known = [0.0] if self._log_lengths is None else self._log_lengths.tolist()
        return [(number + 1, log_p) for number, log_p in enumerate(known[: self._limits.tokens])]

    def _together(
        self, xs: Words, questions: Tensor, number: int, log_weights: Tensor, results: Sequence[SearchResult]
    ) -> LikelyAnswers:
        """The answers of all forms, scored under all prompts."""
        texts = list(dict.fromkeys(answer.text for result in results for answer in result.answers))
        # What no form has found has at most what each of them may have missed.
        unseen = float(torch.tensor([result.unseen for result in results]).logsumexp(0))
        if not texts:
            return LikelyAnswers((), all(result.is_exact for result in results), unseen)
        mixture = self._mixture
        ys = words_of(texts, mixture.lm.wording, mixture.lm.device)
        x = questions[number]
        same_x = Words(
            xs.ids[:, x].unsqueeze(1).expand(-1, len(texts), -1), xs.lengths[:, x, None].expand(-1, len(texts))
        )
        every = torch.arange(len(texts), device=mixture.lm.device)
        log_lengths = self._log_lengths if mixture.long_answers.fills_masks else None
        by_prompt = mixture.long_answers.log_probs(self._tuned, same_x, ys, every, log_lengths).double()
        of_mixture = (by_prompt + log_weights[number]).logsumexp(1)
        order = of_mixture.argsort(descending=True, stable=True).tolist()
        answers = tuple(LikelyAnswer(texts[n], float(of_mixture[n]), tuple(by_prompt[n].tolist())) for n in order)
        return LikelyAnswers(answers, all(result.is_exact for result in results), unseen)


def text_of(lm: FrozenLM, place: Place) -> Callable[[tuple[int, ...]], str | None]:
    """The surface string that tokens spell at a place; None where the tokenizer would spell it otherwise, for special
    and unknown tokens, and for nothing but space."""
    special = {token for token, added in lm.tokenizer.added_tokens_decoder.items() if added.special}
    refused = special | set(lm.tokenizer.all_special_ids)

    @cache
    def spelt(tokens: tuple[int, ...]) -> str | None:
        names = [str(name) for name in lm.tokenizer.convert_ids_to_tokens(list(tokens))]
        if refused & {*tokens}:
            return None
        if lm.wording.marks is Place.GLUED:
            names = [names[0].removeprefix(lm.wording.marker), *names[1:]]
        text = lm.tokenizer.convert_tokens_to_string(names).strip()
        return text if text and tuple(lm.wording.encode(text, place)) == tokens else None

    return spelt
