"""Ranks the right answer of each fact among all strings that the LM can spell, by best-first search; and the controls
of such answers.

Ranks are exact up to the tenth. Any later rank is infinite: its reciprocal counts as 0. Where a search reaches its
limit before the rank is known, the rank lies between two bounds: the better answers that were found, and how many more
there can be in the probability that is left.
"""

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.data.facts import Relation
from askwell.errors import NotFinite
from askwell.evaluation.agreement import PromptAnswers
from askwell.evaluation.controls import MAJORITY, PRIOR, PRIOR_MASKED_X, masked_x
from askwell.evaluation.outcomes import Outcome
from askwell.lms.batches import Words, words_of
from askwell.mixture import distributions
from askwell.mixture.answer_search import AnswerSearch, LikelyAnswer, LikelyAnswers, speller
from askwell.mixture.answers import AnswerKind
from askwell.mixture.encode import EncodedFacts, LeftOutFact, why_unaskable, why_unspellable
from askwell.mixture.mixture import Mixture
from askwell.mixture.search import SearchLimits

RANKED = 10
"""Ranks are exact up to this one."""
_FACTS_AT_ONCE = 32
_WORK_AT_ONCE = 2**26
"""Facts are searched together up to this many squares of the LM's width, over its layers and all prompts: of a large LM
fewer, so that progress shows."""
_OPENED, _MOST_OPENED = 100, 1000
"""Prefixes that are opened for each fact at first, and for one whose rank is not known by then."""
_OPENED_FOR_THE_BEST = 4
"""Prefixes of one fact that are opened together where only the best answer counts: a better one is soon found."""
_MOST_XS = 32
"""The prior of open answers is the mean over at most this many x's of train."""
_PRIOR_ANSWERS = 30


class OpenFacts:
    """The facts of a split that a mixture can be asked about, with answers of any length."""

    def __init__(
        self, mixture: Mixture, relation: Relation, facts: EncodedFacts, left_out: Sequence[LeftOutFact] = ()
    ) -> None:
        self.mixture, self.relation, self.facts, self.left_out = mixture, relation, facts, tuple(left_out)

    @property
    def kind(self) -> AnswerKind:
        """What counts as an answer."""
        return self.facts.kind

    @property
    def candidates_left_out(self) -> int:
        """There are no candidates."""
        return 0

    @property
    def vocabulary(self) -> str:
        """The answers that golds are ranked among, in words."""
        return self.facts.kind.describe(self.mixture.lm.identity.name)

    def chunks(self, *, often: bool = True) -> Iterable[Int[Tensor, " facts"]]:
        """The numbers of the facts, as many at once as are searched together; unless progress shows `often`, as many
        as are searched fastest."""
        of_prompt = sum(stack.layers * stack.width**2 for stack in self.mixture.lm.stacks.values())
        few = max(4, _WORK_AT_ONCE // (of_prompt * len(self.mixture.prompts)))
        at_once = min(few, _FACTS_AT_ONCE) if often else _FACTS_AT_ONCE
        return torch.arange(len(self.facts), device=self.mixture.lm.device).split(at_once)

    def observer(self) -> "OpenObserver":
        """An observer that notes each prompt's own answers while facts are asked."""
        return OpenObserver(tuple((self.mixture.weight_logits > -torch.inf).nonzero()[:, 0].tolist()))

    def priors(self, seed: int) -> tuple[dict[str, "OpenPrior"], dict[str, str]]:
        """Controls that need no x, and why others are missing. There are infinitely many answers of any length, so none
        is corrected by the prior."""
        priors: dict[str, OpenPrior] = {}
        missing: dict[str, str] = {}
        if (most_frequent := open_majority(self.mixture, self.relation, self.kind)) is not None:
            priors[MAJORITY] = most_frequent
        else:
            missing[MAJORITY] = f"no train y of {self.relation.name} can be an answer"
        if (prior := open_prior(self.mixture, self.relation, self.kind, seed=seed)) is not None:
            priors[PRIOR] = prior
        else:
            missing[PRIOR] = f"no train x of {self.relation.name} can be asked"
        if (masked := open_masked_prior(self.mixture, self.kind)) is not None:
            priors[PRIOR_MASKED_X] = masked
        return priors, missing

    def ask(
        self,
        some: Int[Tensor, " facts"],
        top: int = RANKED,
        observer: "OpenObserver | None" = None,
        prior: "OpenPrior | None" = None,  # noqa: ARG002 - no answer of any length is corrected by a prior
    ) -> tuple[list[Outcome], list[Outcome]]:
        """The outcomes of some facts, with their most probable answers; none is corrected by a prior.

        If no answers are wanted (`top` is 0), only what is more probable than y is searched for.
        """
        if top == 0 and observer is None:
            golds = self._gold_log_probabilities(some)
            better = self._better(some, golds, RANKED)
            return [self._outcome(*of, top) for of in zip(some.tolist(), golds, better, strict=True)], []
        search = self._search(answers=max(top, RANKED), opened=_OPENED)
        others = [self._others(number) for number in some.tolist()]
        found = search.best(self.facts.xs, some, lambda number, text: text not in others[number])
        golds = self._golds_of(some, found)
        outcomes = [self._outcome(*of, 0) for of in zip(some.tolist(), golds, found, strict=True)]
        left_open = [place for place, outcome in enumerate(outcomes) if not outcome.is_settled]
        wider = self._better(some[left_open], [golds[place] for place in left_open], RANKED, _MOST_OPENED)
        for place, of_fact in zip(left_open, wider, strict=True):
            found[place] = _merged(of_fact, found[place])
        if observer is not None:
            observer.note(self.mixture, self.facts.xs, some, found)
        return [self._outcome(*of, top) for of in zip(some.tolist(), golds, found, strict=True)], []

    def _golds_of(self, some: Int[Tensor, " facts"], found: Sequence[LikelyAnswers]) -> list[float]:
        """The log-probabilities of the ys of some facts; only those that were not found are asked for."""
        numbers = some.tolist()
        golds = [
            next((answer.log_probability for answer in of_fact.answers if answer.text == self._y(number)), None)
            for number, of_fact in zip(numbers, found, strict=True)
        ]
        missed = [place for place, gold in enumerate(golds) if gold is None]
        asked = dict(zip(missed, self._gold_log_probabilities(some[missed]) if missed else (), strict=True))
        return [asked[place] if gold is None else gold for place, gold in enumerate(golds)]

    def _better(
        self, some: Int[Tensor, " facts"], golds: Sequence[float], answers: int, opened: int | None = None
    ) -> list[LikelyAnswers]:
        """For some facts the answers that are as probable as y, up to this many wrong ones. A few prefixes are opened
        at first, which is enough for most, and many more for the others."""
        found = dict.fromkeys(range(len(golds)), LikelyAnswers((), is_exact=True))
        right = [{*self._others(number), self._y(number)} for number in some.tolist()]
        asked = [place for place, gold in enumerate(golds) if gold > -math.inf]
        at_once = _OPENED_FOR_THE_BEST if answers == 1 else SearchLimits.at_once
        for most in (_OPENED, _MOST_OPENED) if opened is None else (opened,):
            search = self._search(answers=answers, opened=most, at_once=at_once)
            of_asked = search.at_least(
                self.facts.xs,
                some[asked],
                [golds[place] for place in asked],
                lambda number, text, asked=asked: text not in right[asked[number]],
            )
            found |= zip(asked, of_asked, strict=True)
            asked = [place for place in asked if not found[place].is_exact]
            if not asked:
                break
        return [found[place] for place in range(len(golds))]

    def is_best(self, some: Int[Tensor, " facts"]) -> tuple[list[bool | None], list[float]]:
        """Whether y is the best answer to each of some facts, None where the search was cut before that was known; and
        its log-probability. It is less work than its rank."""
        golds = self._gold_log_probabilities(some)
        best: list[bool | None] = []
        for number, gold, found in zip(some.tolist(), golds, self._better(some, golds, 1), strict=True):
            right = {*self._others(number), self._y(number)}
            is_wrong = gold == -math.inf or any(answer.text not in right for answer in found.answers)
            best.append(False if is_wrong else True if found.is_exact else None)
        return best, golds

    def prior_outcomes(self, prior: "OpenPrior", top: int = RANKED) -> list[Outcome]:
        """The outcomes if the same answers are given to every x."""
        return [self._prior_outcome(number, prior, top) for number in range(len(self.facts))]

    def _prior_outcome(self, number: int, prior: "OpenPrior", top: int) -> Outcome:
        found, y = prior.found, self._y(number)
        outcome = self._outcome(number, prior.of(y), found, top)
        if found.is_exact or outcome.log_probability > -math.inf:
            return outcome
        # The search was cut, and y may be as probable as the best that was not found.
        at_best = self._outcome(number, found.unseen, found, 0)
        return replace(outcome, rank=at_best.rank, raw_rank=at_best.raw_rank)

    def labels(self, outcomes: Sequence[Outcome]) -> None:
        """There are no labels to choose from."""

    def _outcome(self, number: int, gold: float, found: LikelyAnswers, top: int) -> Outcome:
        """The outcome of a fact."""
        fact, y, others = self.facts.facts[number], self._y(number), self._others(number)
        gold = next((answer.log_probability for answer in found.answers if answer.text == y), gold)
        if math.isnan(gold) or gold == math.inf:
            raise NotFinite("a probability is not finite, so answers cannot be ranked")
        wrong = [answer for answer in found.answers if answer.text != y]
        raw = _rank(gold, [answer.log_probability for answer in wrong])
        rank = _rank(gold, [answer.log_probability for answer in wrong if answer.text not in others])
        # With enough answers that are as probable as those sought, what was not found does not matter.
        unknown = 0.0 if found.is_exact else found.most_unseen(gold)
        answers = [(self._spelling.get(answer.text, answer.text), answer.log_probability) for answer in found.answers]
        kept = answers[:top] or [("", -math.inf)][:top]
        return Outcome(
            relation=self.relation.name,
            x=fact.x,
            y=fact.y,
            golds=self.relation.golds[fact.x],
            rank=_capped(rank),
            raw_rank=_capped(raw),
            log_probability=gold,
            answers=tuple(text for text, _ in kept),
            probabilities=tuple(math.exp(log_probability) for _, log_probability in kept),
            rank_at_most=_capped(rank + unknown),
        )

    def _search(self, **limits: int) -> AnswerSearch:
        kind = self.facts.kind
        return AnswerSearch(self.mixture, SearchLimits(tokens=kind.longest, **limits), kind)

    @torch.no_grad()
    def _gold_log_probabilities(self, some: Int[Tensor, " facts"]) -> list[float]:
        return distributions.log_likelihood(self.mixture, self.facts, some).double().tolist()

    def _y(self, number: int) -> str:
        return self._text(self.facts.facts[number].y)

    def _others(self, number: int) -> set[str]:
        fact = self.facts.facts[number]
        return {self._text(y) for y in self.relation.golds[fact.x]} - {self._text(fact.y)}

    def _text(self, y: str) -> str:
        """The string that y's tokens spell, which identifies an answer; an uncased LM spells it in lower case."""
        return self._texts.get(y, y)

    @cached_property
    def _texts(self) -> dict[str, str]:
        return spelt_texts(self.mixture, {y for ys in self.relation.golds.values() for y in ys})

    @cached_property
    def _spelling(self) -> dict[str, str]:
        """The relation's own spelling of what the LM's tokens spell."""
        spelling: dict[str, str] = {}
        for y, text in sorted(self._texts.items()):
            spelling.setdefault(text, y)
        return spelling


def spelt_texts(mixture: Mixture, ys: Iterable[str]) -> dict[str, str]:
    """For each y the string that its tokens spell; y itself where the tokenizer does not give it back."""
    place = mixture.answer_space.places[0]
    spell = speller(mixture.lm, place)
    return {y: spell(tuple(mixture.lm.wording.encode(y, place))) or y for y in ys}


def _rank(gold: float, others: Sequence[float]) -> float:
    if gold == -math.inf:
        return math.inf
    return 1 + sum(other > gold for other in others) + 0.5 * sum(other == gold for other in others)


def _capped(rank: float) -> float:
    return rank if rank <= RANKED else math.inf


def _merged(found: LikelyAnswers, others: LikelyAnswers) -> LikelyAnswers:
    """What a search found, and the answers of another one."""
    answers = {answer.text: answer for answer in (*others.answers, *found.answers)}.values()
    ordered = sorted(answers, key=lambda answer: -answer.log_probability)
    return replace(found, answers=tuple(ordered))


# ── what each prompt answers ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class OpenObserver:
    """Records how probable each prompt finds the answers that the whole mixture finds best.

    A prompt's best answer is the best of these to it, and divergences are those of the distributions over these answers
    and all others taken together, which is at most that of the whole distributions.
    """

    prompts: tuple[int, ...]
    _best: list[Int[np.ndarray, " prompts"]] = field(default_factory=list)
    _weights: list[Float[np.ndarray, " prompts"]] = field(default_factory=list)
    _divergences: list[float] = field(default_factory=list)

    def note(self, mixture: Mixture, xs: Words, some: Int[Tensor, " facts"], found: Sequence[LikelyAnswers]) -> None:
        """Takes what was found for some facts."""
        weights = mixture.log_weights_for(xs, some).exp().double().detach().cpu().numpy()[:, list(self.prompts)]
        for of_fact, of_prompts in zip(found, weights, strict=True):
            probs = np.exp([[answer.by_prompt[prompt] for prompt in self.prompts] for answer in of_fact.answers])
            probs = probs.reshape(len(of_fact.answers), len(self.prompts))
            rest = np.clip(1 - probs.sum(0), 0, None)
            everything = np.vstack([probs, rest])
            divergence = _entropy(everything @ of_prompts) - float(of_prompts @ _entropy(everything))
            self._best.append(probs.argmax(0) if len(probs) else np.zeros(len(self.prompts), dtype=int))
            self._weights.append(of_prompts)
            self._divergences.append(max(0.0, float(divergence)))

    def answers(self, rows: list[int]) -> PromptAnswers:
        """What was recorded about some of the facts, one for each x."""
        best, divergences = np.array(self._best), np.array(self._divergences)
        return PromptAnswers(
            self.prompts, best[rows], np.zeros(len(rows), dtype=int), self.weights[rows], divergences[rows]
        )

    @property
    def weights(self) -> Float[np.ndarray, "facts prompts"]:
        """The weights of the prompts for every fact."""
        return np.array(self._weights)


def _entropy(probs: np.ndarray) -> np.ndarray | np.floating:
    """Of each column, in nats."""
    return -(probs * np.log(probs, where=probs > 0, out=np.zeros_like(probs))).sum(0)


# ── controls ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class OpenPrior:
    """Answers that are given to every x, with their probabilities."""

    found: LikelyAnswers
    description: str
    """What it is made from, in words."""

    def of(self, text: str) -> float:
        """The log-probability of an answer, -inf for one that is not among those given."""
        return next((answer.log_probability for answer in self.found.answers if answer.text == text), -math.inf)


def open_majority(mixture: Mixture, relation: Relation, kind: AnswerKind) -> OpenPrior | None:
    """The ys of train by how often they occur there, without those that cannot be answers; None if none can."""
    ys = list(dict.fromkeys(fact.y for fact in relation.train))
    reasons = why_unspellable(mixture, ys, kind)
    texts = spelt_texts(mixture, [y for y, reason in zip(ys, reasons, strict=True) if reason is None])
    counts = Counter(texts[fact.y] for fact in relation.train if fact.y in texts)
    if not counts:
        return None
    total = counts.total()
    answers = tuple(LikelyAnswer(text, math.log(count / total), ()) for text, count in counts.most_common())
    return OpenPrior(LikelyAnswers(answers, is_exact=True), f"how often each y occurs in {total} train facts")


def open_prior(mixture: Mixture, relation: Relation, kind: AnswerKind, *, seed: int = 0) -> OpenPrior | None:
    """The answers that are most probable as the mean of p(y | x, r) over x's of train; None if none can be asked."""
    distinct = sorted({fact.x for fact in relation.train})
    reasons = why_unaskable(mixture, distinct, kind)
    xs = [x for x, reason in zip(distinct, reasons, strict=True) if reason is None]
    if not xs:
        return None
    description = f"the mean of the answers to all {len(xs)} x's of train"
    if len(xs) > _MOST_XS:
        description = f"the mean of the answers to {_MOST_XS} of the {len(xs)} x's of train, drawn with the seed {seed}"
        xs = sorted(random.Random(seed).sample(xs, _MOST_XS))
    words = words_of(xs, mixture.lm.wording, mixture.lm.device)
    bag = torch.arange(len(xs), device=mixture.lm.device)[None]
    return OpenPrior(_prior_search(mixture, kind).best_of_bags(words, bag)[0], description)


def open_masked_prior(mixture: Mixture, kind: AnswerKind) -> OpenPrior | None:
    """The answers to one mask token in the place of x; None where the LM is not asked with masks."""
    words = masked_x(mixture)
    if words is None:
        return None
    only = torch.zeros(1, dtype=torch.long, device=mixture.lm.device)
    # Weights that depend on x are left at p(t | r): there is no x whose probability they could follow.
    static = mixture.weight_logits.detach().log_softmax(0)
    found = _prior_search(mixture, kind).best(words, only, log_weights=static)[0]
    return OpenPrior(found, "the answer to one mask token in the place of x")


def _prior_search(mixture: Mixture, kind: AnswerKind) -> AnswerSearch:
    limits = SearchLimits(answers=_PRIOR_ANSWERS, tokens=kind.longest)
    return AnswerSearch(mixture, limits, kind)
