"""Outcomes as questions: one for each x, with the best answer's probability and whether it is right.

Calibration: of the answers that are given with probability p, is a share p right?

Answer sets: all answers above a threshold, held against all right ones.

What is asked for are the ys of an x in the split at hand (as far as they could be asked). Its golds of other splits
are left out of the answers, as they are left out of ranks: they are right, but may have been learned in training.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from askwell.errors import BadOption, UserMistake
from askwell.evaluation.outcomes import Outcome


@dataclass(frozen=True)
class Questions:
    """What was answered to some questions."""

    confidences: Float[np.ndarray, " questions"]
    """The probability of the best answer."""
    right: Bool[np.ndarray, " questions"]
    """Whether the best answer is right."""


def questions_of(outcomes: Sequence[Outcome]) -> Questions:
    """One question for each x of each relation, in the order in which they come.

    An x with several facts is asked once. Its best answer is right if it is a gold of any split, or if one of its
    facts has the raw rank 1 (an LM that lower-cases writes its answers otherwise than the facts).
    """
    by_x = outcomes_by_x(outcomes)
    if not by_x:
        raise UserMistake("there are no outcomes, and so no questions")
    return Questions(
        np.array([of_x[0].probabilities[0] for of_x in by_x]),
        np.array(
            [of_x[0].answers[0] in of_x[0].golds or any(outcome.raw_rank == 1 for outcome in of_x) for of_x in by_x]
        ),
    )


def outcomes_by_x(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """The outcomes of each x of each relation, in the order in which they come."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.relation, outcome.x), []).append(outcome)
    return list(groups.values())


@dataclass(frozen=True)
class Bin:
    """The answers whose probability is above `low` and at most `high`; shares and probabilities are from 0 to 1."""

    low: float
    high: float
    count: int
    confidence: float
    """Their mean probability."""
    accuracy: float
    """The share of them that is right."""


@dataclass(frozen=True)
class Calibration:
    """A reliability diagram, and its one figure."""

    questions: int
    confidence: float
    """The mean probability of all answers; above the accuracy, the LM is too sure of itself."""
    accuracy: float
    ece: float
    """The expected calibration error, from 0 (best) to 1."""
    bins: tuple[Bin, ...]
    """Bins without an answer are left out."""

    def as_json(self) -> dict[str, Any]:
        """All figures by name."""
        return asdict(self) | {"bins": [asdict(one) for one in self.bins]}


def calibration(
    confidences: Float[np.ndarray, " questions"], right: Bool[np.ndarray, " questions"], *, bins: int = 10
) -> Calibration:
    """The reliability of answers in `bins` bins of equal width, and the expected calibration error.

    Bin k of n holds the probabilities p with (k - 1) / n < p <= k / n; a p of 0 is in the first. The error is the mean
    over all answers of |accuracy - mean probability| of the bin that the answer is in.
    """
    if bins < 1:
        raise BadOption(f"{bins} bins: at least one is needed")
    if not len(confidences):
        raise BadOption("there are no answers whose calibration could be told")
    if (confidences < 0).any() or (confidences > 1 + 1e-6).any():
        raise BadOption("calibration is about probabilities, and some numbers are not between 0 and 1")
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


@dataclass(frozen=True)
class AnswerSets:
    """How good the answer sets of some x's are; shares are from 0 to 1."""

    threshold: float
    questions: int
    """How many x's were asked."""
    answered: int
    """How many of them got at least one answer."""
    precision: float
    """Of all answers to all x's, the share that is right; 0 if there is no answer."""
    recall: float
    """Of all ys asked for, the share that was answered."""
    f1: float
    """The harmonic mean of precision and recall."""
    mean_f1: float
    """The mean over x's of the F1 of each."""
    cut: int
    """How many x's may have more answers above the threshold than were kept of each (ten, by default)."""

    def as_json(self) -> dict[str, float]:
        """All figures by name."""
        return asdict(self)


@dataclass(frozen=True)
class _Answers:
    """The answers to one x, without its golds of other splits, the most probable first."""

    probabilities: list[float]
    right: list[bool]
    asked_for: int
    last: float
    """The probability of the last answer that was kept."""


def learn_set_threshold(outcomes: Sequence[Outcome]) -> float:
    """The threshold with the best F1 over all answers to the x's of dev; of several, the highest.

    All probabilities of their answers are tried.
    """
    questions = _questions(outcomes)
    probabilities = np.array([p for question in questions for p in question.probabilities])
    right = np.array([is_right for question in questions for is_right in question.right], dtype=bool)
    if not right.any():
        return 1.0  # no threshold is better than another, and this one says least
    thresholds, which = np.unique(-probabilities, return_inverse=True)
    answers = np.cumsum(np.bincount(which))
    hits = np.cumsum(np.bincount(which, weights=right))
    f1 = 2 * hits / (answers + sum(question.asked_for for question in questions))
    return float(-thresholds[np.argmax(f1)])


def score_answer_sets(outcomes: Sequence[Outcome], threshold: float) -> AnswerSets:
    """Precision, recall and F1 if every answer with a probability of at least the threshold is given."""
    questions = _questions(outcomes)
    answers, hits, f1s, answered, cut = 0, 0, [], 0, 0
    for question in questions:
        given = sum(p >= threshold for p in question.probabilities)
        hit = sum(r for p, r in zip(question.probabilities, question.right, strict=True) if p >= threshold)
        answers, hits = answers + given, hits + hit
        answered += given > 0
        cut += question.last >= threshold
        f1s.append(2 * hit / (given + question.asked_for))
    asked_for = sum(question.asked_for for question in questions)
    return AnswerSets(
        threshold=threshold,
        questions=len(questions),
        answered=answered,
        precision=hits / answers if answers else 0.0,
        recall=hits / asked_for,
        f1=2 * hits / (answers + asked_for),
        mean_f1=sum(f1s) / len(f1s),
        cut=cut,
    )


def _questions(outcomes: Sequence[Outcome]) -> list[_Answers]:
    if not outcomes:
        raise UserMistake("there are no outcomes, and so no answer sets")
    return [_answers(of_x) for of_x in outcomes_by_x(outcomes)]


def _answers(of_x: Sequence[Outcome]) -> _Answers:
    first = of_x[0]
    asked_for = {outcome.y for outcome in of_x}
    others = {*first.golds} - asked_for
    hits = {place for place, answer in enumerate(first.answers) if answer in asked_for}
    for outcome in of_x:
        # An LM that lower-cases writes its answers otherwise than the facts; the rank tells which one y is.
        if outcome.y not in first.answers and outcome.raw_rank in range(1, len(first.answers) + 1):
            hits.add(int(outcome.raw_rank) - 1)
    kept = [place for place, answer in enumerate(first.answers) if place in hits or answer not in others]
    return _Answers(
        probabilities=[first.probabilities[place] for place in kept],
        right=[place in hits for place in kept],
        asked_for=len(asked_for),
        last=first.probabilities[-1],
    )
