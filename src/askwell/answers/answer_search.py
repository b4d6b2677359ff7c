"""The most probable answers of any length under a mixture, and all that are more probable than a given one.

Prompts that need different forms of a word (" Paris", "Paris") spell the same answer in different tokens. Prompts of
one form are searched together. An answer of the whole mixture gets at least 1/n of its probability from one of n
forms, so searching form by form, with a threshold that is lower by that factor, finds all answers that matter; they
are then scored under all prompts.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.answers.encode import AnswerKind
from askwell.answers.likelihood import check_one_form
from askwell.answers.prefixes import PrefixReader
from askwell.answers.search import FoundAnswer, FoundAnswers, IsCounted, Prefix, SearchLimits, search_answers
from askwell.answers.tree import candidate_log_probs
from askwell.lms.batches import PLACES, Words, words_of
from askwell.lms.tokenisation import Place
from askwell.lms.vocabulary import speller
from askwell.prompts.prompt_set import PromptSet

# The most bytes that are cached for the sentences of the questions searched at once.
_KEPT_BYTES = 2**29


class AnswerSearch:
    """Searches the answers of some prompts in their present state."""

    def __init__(
        self,
        prompt_set: PromptSet,
        limits: SearchLimits,
        kind: AnswerKind,
        *,
        only: int | None = None,
    ) -> None:
        """Prepare to search; with `only`, the answers of the prompt of that number, as if there were no other."""
        self._prompts, self._limits, self._tuned = prompt_set, limits, prompt_set.tuned
        if only is not None:
            self._tuned = replace(self._tuned, kept=torch.tensor([only], device=prompt_set.lm.device))
        self._log_lengths = kind.lengths_on(prompt_set.lm) if prompt_set.long_answers.fills_masks else None
        ends = [prompt_set.long_answers.end_of(prompt) for prompt in self._tuned.kept.tolist()]
        # An answer ends at the end token of any of the prompts, so that they all give the same answers.
        self._ends = frozenset(end for end in ends if end is not None) - frozenset(kind.through)
        self._goes_on = not prompt_set.long_answers.fills_masks and not self._ends.issuperset(ends)
        places = prompt_set.pairs.y_places[self._tuned.kept]
        is_product = prompt_set.is_product and only is None
        self._exponents = prompt_set.weights.detach()[self._tuned.kept] if is_product else None
        if self._exponents is not None:
            check_one_form(prompt_set)
        self._forms = {
            PLACES[number]: self._tuned.kept[places == number] for number in sorted({*places.tolist()})
        }  # fmt: skip

    def best(
        self,
        xs: Words,
        questions: Int[Tensor, "questions *xs"],
        counts: IsCounted | None = None,
        log_weights: Float[Tensor, " prompts"] | None = None,
    ) -> list[FoundAnswers]:
        """Return the most probable answers to each question, up to the limit of those that `counts` accepts. A question
        is the number of an x, or those of several, of whose p(y | x, r) the mean is meant. Weights that do not depend
        on x can replace the mixture's."""
        bags = questions.view(len(questions), -1)
        found = self._found(xs, bags, None, counts, log_weights)
        if len(self._forms) == 1:
            return found
        # The best answers of each form by itself are a lower bound for those of the mixture.
        least = [self._last_that_counts(number, of.answers, counts) for number, of in enumerate(found)]
        results = []
        for number, of in enumerate(self._found(xs, bags, least, _none_counts, log_weights)):
            last = self._last_that_counts(number, of.answers, counts)
            answers = tuple(answer for answer in of.answers if answer.log_probability >= last)
            results.append(replace(of, answers=answers if counts else answers[: self._limits.answers]))
        return results

    def at_least(
        self,
        xs: Words,
        questions: Int[Tensor, " questions"],
        least: Sequence[float],
        counts: IsCounted | None = None,
    ) -> list[FoundAnswers]:
        """Return all answers to each question whose log-probability is at least that given, up to the limit of those
        that `counts` accepts; an answer counts where the prompts of one form give it that much."""
        return [
            replace(of, answers=tuple(a for a in of.answers if a.log_probability >= least[number]))
            for number, of in enumerate(self._found(xs, questions[:, None], least, counts, None))
        ]

    def _last_that_counts(self, number: int, answers: Sequence[FoundAnswer], counts: IsCounted | None) -> float:
        """Return the probability of the last answer within the limit, -inf if there are fewer."""
        counted = [answer for answer in answers if counts is None or counts(number, answer.text)]
        within = len(counted) >= self._limits.answers
        return counted[self._limits.answers - 1].log_probability if within else -math.inf

    @torch.no_grad()
    def _found(
        self,
        xs: Words,
        bags: Int[Tensor, "bags xs"],
        least: Sequence[float] | None,
        counts: IsCounted | None,
        log_weights: Tensor | None,
    ) -> list[FoundAnswers]:
        """Search the bags in batches, so that what is cached of their sentences fits into memory."""
        found: list[FoundAnswers] = []
        at_once = self._bags_at_once(xs, bags)
        for start in range(0, len(bags), at_once):
            some = bags[start : start + at_once]
            sought = None if least is None else least[start : start + at_once]
            counted = None if counts is None else _shifted(counts, start)
            found += self._found_at_once(xs, some, sought, counted, log_weights)
        return found

    def _bags_at_once(self, xs: Words, bags: Int[Tensor, "bags xs"]) -> int:
        lm, experts = self._prompts.lm, bags.shape[1] * len(self._tuned.kept)
        tokens = int(self._prompts.pairs.longest_question(xs).max()) + self._limits.opened
        number = torch.finfo(lm.dtype).bits // 8
        of_token = sum(2 * number * stack.layers * stack.width for stack in lm.stacks.values())
        return max(1, _KEPT_BYTES // (experts * tokens * of_token))

    def _found_at_once(
        self,
        xs: Words,
        bags: Int[Tensor, "bags xs"],
        sought: Sequence[float] | None,
        counts: IsCounted | None,
        given_weights: Tensor | None,
    ) -> list[FoundAnswers]:
        prompt_set, size = self._prompts, bags.shape[1]
        everyone = bags.flatten()
        if given_weights is None:
            given_weights = prompt_set.log_weights_for(xs, everyone)
        log_weights = given_weights.double().expand(len(everyone), -1).view(*bags.shape, -1) - math.log(size)
        results: list[list[FoundAnswers]] = [[] for _ in bags]
        # An answer of the whole mixture may get as little as this from the prompts of each form.
        of_form = None if sought is None else [one - math.log(len(self._forms)) for one in sought]
        for place, prompts in self._forms.items():
            texts, experts = bags.repeat_interleave(len(prompts), 1), prompts.repeat(size)
            answers, never = prompt_set.long_answers, sorted(self._ends)
            open_ = PrefixReader(answers, self._tuned, xs, texts, experts, self._exponents, never)
            of_experts = log_weights[..., prompts].flatten(1)
            if self._exponents is not None:  # the prompts of an x are one expert
                of_experts = torch.full_like(of_experts[:, :size], -math.log(size))
            roots = [
                [Prefix(number, (), of_bag + log_length, length) for length, log_length in self._lengths()]
                if not any(self._has_enough(number, result, sought, counts) for result in results[number])
                else []
                for number, of_bag in enumerate(of_experts)
            ]
            found = search_answers(
                roots, open_, self._speller(place), self._limits, least=of_form, sure=sought, counts=counts
            )
            for number, result in enumerate(found):
                results[number].append(result)
        return [self._together(xs, bag, log_weights[n], results[n]) for n, bag in enumerate(bags)]

    def _speller(self, place: Place) -> Callable[[tuple[int, ...]], str | None]:
        """Return a function from tokens to the answer that they spell at a place; None if they spell none, or
        one that contains an end token in another form."""
        spelt, encode = speller(self._prompts.lm, place), self._prompts.lm.wording.encode
        others = [other for other in self._forms if other != place]

        def answer(tokens: tuple[int, ...]) -> str | None:
            text = spelt(tokens)
            if text is None or any(self._ends.intersection(encode(text, other)) for other in others):
                return None
            return text

        return answer

    def _has_enough(
        self, number: int, found: FoundAnswers, sought: Sequence[float] | None, counts: IsCounted | None
    ) -> bool:
        """Tell whether the prompts of one form find enough answers, and probable enough ones, without the others."""
        if sought is None:
            return False
        sure = [answer.text for answer in found.answers if answer.log_probability >= sought[number]]
        return sum(counts is None or counts(number, text) for text in sure) >= self._limits.answers

    def _lengths(self) -> list[tuple[int | None, float]]:
        if not self._prompts.long_answers.fills_masks:
            return [(None, 0.0)]
        known = [0.0] if self._log_lengths is None else self._log_lengths.tolist()
        return [(number + 1, log_p) for number, log_p in enumerate(known[: self._limits.tokens])]

    def _together(
        self,
        xs: Words,
        bag: Int[Tensor, " xs"],
        log_weights: Float[Tensor, "xs prompts"],
        results: Sequence[FoundAnswers],
    ) -> FoundAnswers:
        """Combine the answers of all forms, scored under all prompts."""
        is_exact = all(result.is_exact for result in results)
        unseen = float(torch.tensor([result.unseen for result in results], dtype=torch.float64).logsumexp(0))
        # An answer that is probable enough gets at least 1/n of its probability from one of the n forms.
        left = sum(result.left for result in results) * len(results)
        if self._goes_on:  # the probability of an end is then also that of an answer that continues after it
            left *= self._limits.tokens + 1
        found = {answer.text: answer for result in results for answer in result.answers}
        if not found:
            return FoundAnswers((), is_exact, unseen, left)
        kept = self._tuned.kept
        if len(results) == 1 and self._exponents is None:
            joint = torch.stack([answer.parts for answer in found.values()]).view(len(found), len(bag), len(kept))
            of_mixture = torch.tensor([answer.log_probability for answer in found.values()], dtype=torch.float64)
            of_kept = (joint - log_weights[:, kept]).nan_to_num(nan=-torch.inf, neginf=-torch.inf)
            by_x = of_kept.new_full((*of_kept.shape[:2], log_weights.shape[1]), -torch.inf)
            by_x[..., kept] = of_kept
        else:
            ys = words_of(list(found), self._prompts.lm.wording, self._prompts.lm.device)
            by_x = candidate_log_probs(self._prompts.long_answers, self._tuned, xs, bag, ys, self._log_lengths)
            by_x = by_x.double().movedim(2, 0)
            of_mixture = (by_x + log_weights).flatten(1).logsumexp(1)
            if self._exponents is not None:
                of_mixture = torch.tensor([answer.log_probability for answer in found.values()], dtype=torch.float64)
        by_prompt = by_x.logsumexp(1) - math.log(len(bag))
        texts = list(found)
        order = of_mixture.argsort(descending=True, stable=True).tolist()
        answers = tuple(FoundAnswer(texts[n], float(of_mixture[n]), by_prompt[n]) for n in order)
        return FoundAnswers(answers, is_exact, unseen, left)


def _none_counts(_question: int, _text: str) -> bool:
    return False


def _shifted(counts: IsCounted, start: int) -> IsCounted:
    """Adapt `counts` to questions that are numbered from `start`."""
    return lambda number, text: counts(start + number, text)
