"""Consistency: do several ways of asking, or several runs, give the same answer to the same question?

Shares are from 0 to 1. Agreement is not truth: all can be wrong together.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from askwell.errors import BadOption, UserMistake
from askwell.evaluation.evaluate import Outcome
from askwell.trust.prompt_answers import PromptAnswers
from askwell.trust.questions import outcomes_by_x, questions_of


@dataclass(frozen=True)
class Agreement:
    """How often the prompts of a mixture have the same best answer, as a mean over questions."""

    questions: int
    pairs: float
    """Of all pairs of prompts, the share that gives the same answer."""
    weighted: float | None
    """The same with pairs counted by the product of their weights; None where one prompt has all the weight."""
    all_agree: float
    """The share of questions to which all prompts give the same answer."""
    with_mixture: float
    """The weight of the prompts whose answer is the mixture's own."""


@dataclass(frozen=True)
class Consistency:
    """How far the prompts of a mixture agree: hard prompts that are paraphrases of each other, or soft ones."""

    prompts: int
    all: Agreement
    right: Agreement | None
    """Among questions that the mixture answers right; None if there are none."""

    def as_json(self) -> dict[str, Any]:
        """All figures by name."""
        return asdict(self)


@dataclass(frozen=True)
class RunPair:
    """Two runs on the questions that both were asked."""

    first: int
    second: int
    questions: int
    same: float
    """The share of questions with the same best answer."""
    right: int
    """Questions that at least one of the two answers right."""
    same_of_right: float | None
    """The share with the same best answer among these; None if there are none."""


@dataclass(frozen=True)
class RunConsistency:
    """Whether runs that differ in their seed alone answer the same."""

    runs: int
    pairs: tuple[RunPair, ...]
    same: float
    """The mean over all pairs of runs."""
    same_of_right: float | None
    """The mean over the pairs that have it."""

    def as_json(self) -> dict[str, Any]:
        """All figures by name."""
        return asdict(self) | {"pairs": [asdict(pair) for pair in self.pairs]}


def consistency(answers: PromptAnswers, right: Bool[np.ndarray, " xs"]) -> Consistency:
    """How far the prompts agree on all x's, and on those that the mixture answers right."""
    if len(answers.prompts) < 2:
        raise BadOption("one prompt alone has none to agree with: consistency is about two prompts or more")
    return Consistency(
        prompts=len(answers.prompts),
        all=_agreement(answers.best, answers.weights, answers.of_mixture),
        right=_agreement(answers.best[right], answers.weights[right], answers.of_mixture[right])
        if right.any()
        else None,
    )


def run_consistency(runs: Sequence[Sequence[Outcome]]) -> RunConsistency:
    """How far runs agree, from what each made of the same facts; questions that only one of two was asked are left out.

    Answers are compared as words, so the runs may be of different mixtures and LMs.
    """
    if len(runs) < 2:
        raise BadOption("one run alone has none to agree with: consistency over seeds is about two runs or more")
    answers = [_best_answers(outcomes) for outcomes in runs]
    pairs = tuple(
        _run_pair(first, second, answers[first], answers[second]) for first, second in combinations(range(len(runs)), 2)
    )
    of_right = [pair.same_of_right for pair in pairs if pair.same_of_right is not None]
    return RunConsistency(
        runs=len(runs),
        pairs=pairs,
        same=float(np.mean([pair.same for pair in pairs])),
        same_of_right=float(np.mean(of_right)) if of_right else None,
    )


def _agreement(
    best: Int[np.ndarray, "xs prompts"], weights: Float[np.ndarray, "xs prompts"], of_mixture: Int[np.ndarray, " xs"]
) -> Agreement:
    prompts = best.shape[1]
    pairs, weighted, all_agree = [], [], []
    for answers, shares in zip(best, weights / weights.sum(1, keepdims=True), strict=True):
        which = np.unique(answers, return_inverse=True)[1]
        counts, totals = np.bincount(which), np.bincount(which, weights=shares)
        pairs.append((counts * (counts - 1)).sum() / (prompts * (prompts - 1)))
        alone = (shares**2).sum()  # pairs of a prompt with itself, which count nowhere
        if alone < 1 - 1e-12:
            weighted.append(((totals**2).sum() - alone) / (1 - alone))
        all_agree.append(len(counts) == 1)
    with_mixture = (weights * (best == of_mixture[:, None])).sum(1) / weights.sum(1)
    return Agreement(
        questions=len(best),
        pairs=float(np.mean(pairs)),
        weighted=float(np.mean(weighted)) if weighted else None,
        all_agree=float(np.mean(all_agree)),
        with_mixture=float(with_mixture.mean()),
    )


def _best_answers(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], tuple[str, bool]]:
    """The best answer to each x of each relation, and whether it is right."""
    by_x, right = outcomes_by_x(outcomes), questions_of(outcomes).right.tolist()
    return {
        (of_x[0].relation, of_x[0].x): (of_x[0].answers[0], is_right)
        for of_x, is_right in zip(by_x, right, strict=True)
    }


def _run_pair(
    first: int,
    second: int,
    of_first: dict[tuple[str, str], tuple[str, bool]],
    of_second: dict[tuple[str, str], tuple[str, bool]],
) -> RunPair:
    shared = [question for question in of_first if question in of_second]
    if not shared:
        raise UserMistake("two runs have no question in common, so they cannot agree on one")
    same = np.array([of_first[question][0] == of_second[question][0] for question in shared])
    right = np.array([of_first[question][1] or of_second[question][1] for question in shared])
    return RunPair(
        first=first,
        second=second,
        questions=len(shared),
        same=float(same.mean()),
        right=int(right.sum()),
        same_of_right=float(same[right].mean()) if right.any() else None,
    )
