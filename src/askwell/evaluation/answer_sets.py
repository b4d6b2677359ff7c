"""Answer sets: all answers above a threshold, compared with all the right ones.

The right ones are the ys of an x in the split being scored, if the LM can answer with them. Its golds in other splits
are left out of the answers, as they are left out of ranks: they are right, but may have been learned in training."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from askwell.errors import UsageError
from askwell.evaluation.calibration import outcomes_by_x
from askwell.evaluation.outcomes import Outcome


@dataclass(frozen=True)
class AnswerSets:
    """How good the answer sets of some x's are; fractions are from 0 to 1."""

    threshold: float
    questions: int
    """How many x's were asked."""
    answered: int
    """How many of them got at least one answer."""
    precision: float
    """The fraction of all answers to all x's that are right; 0 if there is no answer."""
    recall: float
    """The fraction of all ys asked for that were answered."""
    f1: float
    """The harmonic mean of precision and recall."""
    mean_f1: float
    """The mean over x's of the F1 of each."""
    cut: int
    """How many x's may have more answers above the threshold than were kept for each (ten, by default)."""


@dataclass(frozen=True)
class _Answers:
    """The answers to one x, without its golds in other splits, the most probable first."""

    probabilities: list[float]
    right: list[bool]
    asked_for: int
    last: float
    """The probability of the last answer that was kept."""


def learn_set_threshold(outcomes: Sequence[Outcome]) -> float:
    """Return the threshold with the best F1 over all answers to the x's of dev; the highest, if several tie.

    The probability of every answer is tried.
    """
    questions = _questions(outcomes)
    probabilities = np.array([p for question in questions for p in question.probabilities])
    right = np.array([is_right for question in questions for is_right in question.right], dtype=bool)
    if not right.any():
        return 1.0  # all thresholds are equally good, and this one gives the fewest answers
    thresholds, which = np.unique(-probabilities, return_inverse=True)
    answers = np.cumsum(np.bincount(which))
    hits = np.cumsum(np.bincount(which, weights=right))
    f1 = 2 * hits / (answers + sum(question.asked_for for question in questions))
    return float(-thresholds[np.argmax(f1)])


def score_answer_sets(outcomes: Sequence[Outcome], threshold: float) -> AnswerSets:
    """Compute precision, recall and F1 if every answer with a probability of at least the threshold is given."""
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
        raise UsageError("there are no outcomes, so there are no answer sets")
    return [_answers(of_x) for of_x in outcomes_by_x(outcomes)]


def _answers(of_x: Sequence[Outcome]) -> _Answers:
    first = of_x[0]
    asked_for = {outcome.y for outcome in of_x}
    others = {*first.golds} - asked_for
    hits = {place for place, answer in enumerate(first.answers) if answer in asked_for}
    for outcome in of_x:
        # An uncased LM spells its answers differently from the facts; the rank shows which of them is y.
        if outcome.y not in first.answers and outcome.raw_rank in range(1, len(first.answers) + 1):
            hits.add(int(outcome.raw_rank) - 1)
    kept = [place for place, answer in enumerate(first.answers) if place in hits or answer not in others]
    return _Answers(
        probabilities=[first.probabilities[place] for place in kept],
        right=[place in hits for place in kept],
        asked_for=len(asked_for),
        last=first.probabilities[-1],
    )
