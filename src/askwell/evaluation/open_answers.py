"""Ranks the right answer of each fact among all strings that the LM can spell, by best-first search; and the controls
of such answers.

Ranks are exact up to the tenth. Any later rank is infinite: its reciprocal counts as 0. So is the rank of an answer
whose search reached its limit before the rank was known; such facts are counted.
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
        self.unsettled = 0
        """Facts whose search reached its limit before the rank of y was known."""

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

    def chunks(self) -> Iterable[Int[Tensor, " facts"]]:
        """The numbers of the facts, as many at once as are searched together."""
        return torch.arange(len(self.facts), device=self.mixture.lm.device).split(_FACTS_AT_ONCE)

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
            return self._ranks(some), []
        search = self._search(SearchLimits(answers=max(top, RANKED), tokens=self.facts.kind.longest))
        others = [self._others(number) for number in some.tolist()]
        found = search.best(self.facts.xs, some, lambda number, text: text not in others[number])
        if observer is not None:
            observer.note(self.mixture, self.facts.xs, some, found)
        outcomes = []
        for number, gold, of_fact in zip(some.tolist(), self._golds_of(some, found), found, strict=True):
            outcome, is_settled = self._outcome(number, gold, of_fact, top)
            outcomes.append(outcome)
            self.unsettled += not is_settled
        return outcomes, []

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

    def _ranks(self, some: Int[Tensor, " facts"]) -> list[Outcome]:
        """The outcomes of some facts without the best answers."""
        search = self._search(SearchLimits(answers=RANKED, tokens=self.facts.kind.longest))
        golds, numbers = self._gold_log_probabilities(some), some.tolist()
        right = [{*self._others(number), self._y(number)} for number in numbers]
        possible = [place for place, gold in enumerate(golds) if gold > -math.inf]
        found = dict.fromkeys(range(len(numbers)), LikelyAnswers((), is_exact=True))
        searched = search.at_least(
            self.facts.xs,
            some[possible],
            [golds[place] for place in possible],
            lambda number, text: text not in right[possible[number]],
        )
        found |= dict(zip(possible, searched, strict=True))
        outcomes = []
        for place, number in enumerate(numbers):
            # The search has looked for all that is more probable than y, and for nothing else.
            of_fact = replace(found[place], unseen=-math.inf if found[place].is_exact else golds[place])
            outcome, is_settled = self._outcome(number, golds[place], of_fact, 0)
            outcomes.append(outcome)
            self.unsettled += not is_settled
        return outcomes

    def is_best(self, some: Int[Tensor, " facts"]) -> tuple[list[bool], list[float]]:
        """Whether y is the best answer to each of some facts, and its log-probability: less work than its rank."""
        search = self._search(SearchLimits(answers=1, tokens=self.facts.kind.longest, at_once=_OPENED_FOR_THE_BEST))
        golds = self._gold_log_probabilities(some)
        right = [self._others(number) | {self._text(self.facts.facts[number].y)} for number in some.tolist()]
        possible = [place for place, gold in enumerate(golds) if gold > -math.inf]
        found = search.at_least(
            self.facts.xs,
            some[possible],
            [golds[place] for place in possible],
            lambda number, text: text not in right[possible[number]],
        )
        best = [False] * len(golds)
        for place, of_fact in zip(possible, found, strict=True):
            better = any(
                answer.text not in right[place] and answer.log_probability >= golds[place] for answer in of_fact.answers
            )
            best[place] = of_fact.is_exact and not better
        return best, golds

    def prior_outcomes(self, prior: "OpenPrior", top: int = RANKED) -> list[Outcome]:
        """The outcomes if the same answers are given to every x."""
        every = range(len(self.facts))
        return [self._outcome(number, prior.of(self._y(number)), prior.found, top)[0] for number in every]

    def labels(self, outcomes: Sequence[Outcome]) -> None:
        """There are no labels to choose from."""

    def _outcome(self, number: int, gold: float, found: LikelyAnswers, top: int) -> tuple[Outcome, bool]:
        """The outcome of a fact, and whether its rank is known well enough."""
        fact, y, others = self.facts.facts[number], self._y(number), self._others(number)
        gold = next((answer.log_probability for answer in found.answers if answer.text == y), gold)
        if math.isnan(gold) or gold == math.inf:
            raise NotFinite("a probability is not finite, so answers cannot be ranked")
        wrong = [answer for answer in found.answers if answer.text != y]
        raw = _rank(gold, [answer.log_probability for answer in wrong])
        rank = _rank(gold, [answer.log_probability for answer in wrong if answer.text not in others])
        # What was not found may be better.
        is_found = found.is_exact and any(answer.text == y for answer in found.answers)
        is_settled = rank > RANKED or is_found or found.unseen < gold
        if not is_settled:
            rank = raw = math.inf
        answers = [(self._spelling.get(answer.text, answer.text), answer.log_probability) for answer in found.answers]
        kept = answers[:top] or [("", -math.inf)][:top]
        outcome = Outcome(
            relation=self.relation.name,
            x=fact.x,
            y=fact.y,
            golds=self.relation.golds[fact.x],
            rank=rank if rank <= RANKED else math.inf,
            raw_rank=raw if raw <= RANKED else math.inf,
            log_probability=gold,
            answers=tuple(text for text, _ in kept),
            probabilities=tuple(math.exp(log_probability) for _, log_probability in kept),
        )
        return outcome, is_settled

    def _search(self, limits: SearchLimits) -> AnswerSearch:
        return AnswerSearch(self.mixture, limits, self.facts.kind.lengths_on(self.mixture.lm))

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
    return AnswerSearch(mixture, limits, kind.lengths_on(mixture.lm))
