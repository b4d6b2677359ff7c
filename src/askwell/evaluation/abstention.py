"""Abstention: if only the most confident answers are given, how many of them are wrong?

Coverage is the fraction of questions that are answered, risk the fraction of the given answers that are wrong, both
from 0 to 1. The signal by which answers are held back can be a probability, or anything else that is larger for answers
that are more likely to be right."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from askwell.errors import BadOption


@dataclass(frozen=True)
class RiskCoverage:
    """The risk–coverage curve: what happens if all questions with a signal of at least a threshold are answered."""

    thresholds: tuple[float, ...]
    """All distinct signals, in descending order."""
    coverages: tuple[float, ...]
    risks: tuple[float, ...]
    area: float
    """The mean of the risk over the coverages 1/n, 2/n … 1: lower is better."""


@dataclass(frozen=True)
class Threshold:
    """A threshold, with its coverage and risk on the questions that it was learned from."""

    value: float | None
    """Answer if the signal is at least this; None if no threshold meets the risk, in which case nothing is answered."""
    coverage: float
    risk: float
    """0 if nothing is answered."""


@dataclass(frozen=True)
class Abstention:
    """The coverage and risk of a threshold on other questions."""

    questions: int
    answered: int
    wrong: int

    @property
    def coverage(self) -> float:
        """The fraction of questions that are answered."""
        return self.answered / self.questions

    @property
    def risk(self) -> float:
        """The fraction of the given answers that are wrong; 0 if none is given."""
        return self.wrong / self.answered if self.answered else 0.0


def risk_coverage(signals: Float[np.ndarray, " questions"], right: Bool[np.ndarray, " questions"]) -> RiskCoverage:
    """Compute the risk–coverage curve of a signal, and the area under it.

    A threshold cannot separate questions with equal signals: the curve has one point for all of them, and for the area
    their wrong answers are spread evenly over their positions, which is the mean over all their orders."""
    _check(signals)
    thresholds, which = np.unique(-signals, return_inverse=True)
    counts = np.bincount(which)
    wrongs = np.bincount(which, weights=~right)
    answered, wrong = np.cumsum(counts), np.cumsum(wrongs)
    # At each position inside a group: what came before, plus an even share of the group's wrong answers.
    of_place = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(1, len(signals) + 1)
    before = answered[of_place] - counts[of_place]
    wrong_so_far = (wrong - wrongs)[of_place] + (places - before) * (wrongs / counts)[of_place]
    return RiskCoverage(
        thresholds=tuple((-thresholds).tolist()),
        coverages=tuple((answered / len(signals)).tolist()),
        risks=tuple((wrong / answered).tolist()),
        area=float((wrong_so_far / places).mean()),
    )


def learn_threshold(
    signals: Float[np.ndarray, " questions"],
    right: Bool[np.ndarray, " questions"],
    *,
    risk: float,
    confidence: float | None = None,
) -> Threshold:
    """Return the threshold that answers the most dev questions while the risk among them is at most `risk`.

    With `confidence` (0.95, say) it is not the risk itself but its one-sided Clopper–Pearson bound that must be at most
    `risk`, since a threshold chosen on few dev questions will be wrong more often elsewhere.
    """
    if not 0 <= risk <= 1:
        raise BadOption(f"the risk {risk} is not between 0 and 1")
    if confidence is not None and not 0 < confidence < 1:
        raise BadOption(f"the confidence {confidence} is not between 0 and 1")
    curve = risk_coverage(signals, right)
    answered = np.rint(np.array(curve.coverages) * len(signals))
    wrong = np.rint(np.array(curve.risks) * answered)
    bound = np.array(curve.risks) if confidence is None else np.ones(len(answered))
    if confidence is not None:
        from scipy import stats  # imported here, since it takes a second and only bounds need it

        some_right = wrong < answered
        bound[some_right] = stats.beta.ppf(confidence, wrong[some_right] + 1, (answered - wrong)[some_right])
    # Not where the curve first exceeds the risk: it can fall again later.
    kept = np.flatnonzero(bound <= risk)
    if not len(kept):
        return Threshold(None, 0.0, 0.0)
    last = int(kept[-1])
    return Threshold(curve.thresholds[last], curve.coverages[last], curve.risks[last])


def abstain(
    threshold: float | None, signals: Float[np.ndarray, " questions"], right: Bool[np.ndarray, " questions"]
) -> Abstention:
    """Count the questions answered, and those answered wrongly, if every question with a signal of at least the
    threshold is answered; None answers none."""
    _check(signals)
    answered = np.zeros(len(signals), dtype=bool) if threshold is None else signals >= threshold
    return Abstention(len(signals), int(answered.sum()), int((answered & ~right).sum()))


def _check(signals: np.ndarray) -> None:
    if not len(signals):
        raise BadOption("there are no questions to abstain from")
    if np.isnan(signals).any():
        raise BadOption("a signal is not a number, so questions cannot be ordered by it")
