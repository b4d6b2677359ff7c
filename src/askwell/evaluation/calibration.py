"""Calibration: of the answers given with probability p, is a fraction p right?

It is measured over questions: an x with several right answers is one question, to which the mixture gives one best
answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from askwell.errors import BadOption, UsageError
from askwell.evaluation.outcomes import Outcome


@dataclass(frozen=True)
class Questions:
    """The best answer to each of some questions, as arrays to compute with."""

    confidences: Float[np.ndarray, " questions"]
    """The probability of the best answer."""
    right: Bool[np.ndarray, " questions"]
    """Whether the best answer is right."""


def questions_of(outcomes: Sequence[Outcome]) -> Questions:
    """Return one question for each x of each relation, in order of first appearance.

    The best answer is right if it is a gold of any split, or if one of the x's facts has the raw rank 1 (an uncased LM
    spells its answers differently from the facts).
    """
    by_x = outcomes_by_x(outcomes)
    if not by_x:
        raise UsageError("there are no outcomes, so there are no questions")
    return Questions(
        np.array([of_x[0].probabilities[0] for of_x in by_x]),
        np.array(
            [of_x[0].answers[0] in of_x[0].golds or any(outcome.raw_rank == 1 for outcome in of_x) for of_x in by_x]
        ),
    )


def outcomes_by_x(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """Group outcomes by relation and x, in order of first appearance."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.relation, outcome.x), []).append(outcome)
    return list(groups.values())


@dataclass(frozen=True)
class Bin:
    """The answers whose probability is above `low` and at most `high`; all but the count are from 0 to 1."""

    low: float
    high: float
    count: int
    confidence: float
    """Their mean probability."""
    accuracy: float
    """The fraction of them that are right."""


@dataclass(frozen=True)
class Calibration:
    """A reliability diagram, and the figure that summarises it."""

    questions: int
    confidence: float
    """The mean probability of all answers; where it is above the accuracy, the LM is overconfident."""
    accuracy: float
    ece: float
    """The expected calibration error, from 0 (best) to 1."""
    bins: tuple[Bin, ...]
    """Bins without an answer are left out."""


def calibration(
    confidences: Float[np.ndarray, " questions"], right: Bool[np.ndarray, " questions"], *, bins: int = 10
) -> Calibration:
    """Compute the reliability of answers in `bins` bins of equal width, and the expected calibration error.

    Bin k of n has the probabilities p with (k - 1) / n < p <= k / n; a p of 0 is in the first. The error is the mean
    over all answers of |accuracy - mean probability| of the answer's bin.
    """
    if bins < 1:
        raise BadOption(f"{bins} bins: at least one is needed")
    if not len(confidences):
        raise BadOption("there are no answers to measure calibration on")
    if (confidences < 0).any() or (confidences > 1 + 1e-6).any():
        raise BadOption("calibration needs probabilities, but some numbers are not between 0 and 1")
    edges = np.arange(bins + 1) / bins
    # A sum of float32 probabilities can end a little above 1.
    place = np.clip(np.searchsorted(edges, confidences, side="left") - 1, 0, bins - 1)
    filled = []
    for number in np.unique(place):
        inside = place == number
        filled.append(
            Bin(
                low=float(edges[number]),
                high=float(edges[number + 1]),
                count=int(inside.sum()),
                confidence=float(confidences[inside].mean()),
                accuracy=float(right[inside].mean()),
            )
        )
    return Calibration(
        questions=len(confidences),
        confidence=float(confidences.mean()),
        accuracy=float(right.mean()),
        ece=sum(one.count * abs(one.accuracy - one.confidence) for one in filled) / len(confidences),
        bins=tuple(filled),
    )
