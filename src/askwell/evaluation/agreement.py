"""Whether the prompts of a mixture agree: what each of them answers, and whether agreement separates right answers from
wrong ones.

Fractions are from 0 to 1. Agreement is not truth: all prompts can be wrong together.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from askwell.answers.strategy import PromptAnswers
from askwell.errors import BadOption
from askwell.evaluation.abstention import risk_coverage


@dataclass(frozen=True)
class Agreement:
    """How often the prompts of a mixture have the same best answer, as a mean over questions."""

    questions: int
    pairs: float
    """The fraction of all pairs of prompts that give the same answer."""
    weighted: float | None
    """The same with each pair weighted by the product of its weights; None if one prompt has all the weight."""
    all_agree: float
    """The fraction of questions to which all prompts give the same answer."""
    with_mixture: float
    """The weight of the prompts that give the same answer as the mixture."""


@dataclass(frozen=True)
class Consistency:
    """How far the prompts of a mixture agree: hard prompts that are paraphrases of each other, or soft ones."""

    prompts: int
    all: Agreement
    right: Agreement | None
    """Among questions that the mixture gets right; None if there are none."""


def consistency(answers: PromptAnswers, right: Bool[np.ndarray, " xs"]) -> Consistency:
    """Measure how far the prompts agree on all x's, and on those that the mixture gets right."""
    if len(answers.prompts) < 2:
        raise BadOption("consistency needs at least two prompts, and there is only one")
    return Consistency(
        prompts=len(answers.prompts),
        all=_agreement(answers.best, answers.weights, answers.of_mixture),
        right=_agreement(answers.best[right], answers.weights[right], answers.of_mixture[right])
        if right.any()
        else None,
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
        alone = (shares**2).sum()  # pairs of a prompt with itself do not count
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


@dataclass(frozen=True)
class SignalAreas:
    """The area under the risk–coverage curve of several signals on the same questions: lower is better."""

    questions: int
    areas: dict[str, float]
    best_possible: float
    """If all right answers came before all wrong ones."""
    no_signal: float
    """If answers came in random order: the fraction of wrong ones."""


def disagreement(answers: PromptAnswers) -> Float[np.ndarray, " xs"]:
    """Return, for each x, the weight of the prompts whose best answer is not the mixture's, from 0 to 1."""
    same = answers.best == answers.of_mixture[:, None]
    return 1 - (answers.weights * same).sum(1) / answers.weights.sum(1)


def signals_of(
    confidences: Float[np.ndarray, " questions"], answers: PromptAnswers
) -> dict[str, Float[np.ndarray, " questions"]]:
    """Return three confidence signals: the probability of the answer, and two measures of the prompts' agreement."""
    return {
        "probability": confidences,
        "agreement": 1 - disagreement(answers),
        "divergence": -answers.divergences,
    }


def compare_signals(
    signals: Mapping[str, Float[np.ndarray, " questions"]], right: Bool[np.ndarray, " questions"]
) -> SignalAreas:
    """Compute the area of each signal, with the best possible area and the area without a signal."""
    return SignalAreas(
        questions=len(right),
        areas={name: risk_coverage(values, right).area for name, values in signals.items()},
        best_possible=risk_coverage(right.astype(np.float64), right).area,
        no_signal=float((~right).mean()),
    )
