"""What the probabilities of answers are worth: calibration, abstention, answer sets.

- Calibration: of the answers given with probability p, is a fraction p right?
- Abstention: if only the most confident answers are given, how many of them are wrong? Coverage is the fraction of
  questions that are answered, risk the fraction of the given answers that are wrong. The signal by which answers are
  held back can be a probability, or anything else that is larger for answers that are more likely to be right.
- Answer sets: all answers above a threshold, compared with all the right ones. The right ones are the ys of an x in the
  split being scored, if the LM can answer with them. Its golds in other splits are left out of the answers, as they are
  left out of ranks: they are right, but may have been learned in training.

All are measured over questions: an x with several right answers is one question, to which the mixture gives one best
answer. Fractions are from 0 to 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from askwell.errors import BadOption, UsageError
from askwell.evaluation.outcomes import Outcome

_BINS = 10


class Questions(NamedTuple):
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


def calibration(confidences: Float[np.ndarray, " questions"], right: Bool[np.ndarray, " questions"]) -> Calibration:
    """Compute the reliability of answers in ten bins of equal width, and the expected calibration error.

    Bin k of n has the probabilities p with (k - 1) / n < p <= k / n; a p of 0 is in the first. The error is the mean
    over all answers of |accuracy - mean probability| of the answer's bin.
    """
    edges = np.arange(_BINS + 1) / _BINS
    # A sum of float32 probabilities can end a little above 1.
    place = np.clip(np.searchsorted(edges, confidences, side="left") - 1, 0, _BINS - 1)
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


def risk_coverage(signals: Float[np.ndarray, " questions"], right: Bool[np.ndarray, " questions"]) -> RiskCoverage:
    """Compute the risk–coverage curve of a signal, and the area under it.

    A threshold cannot separate questions with equal signals: the curve has one point for all of them, and for the area
    their wrong answers are spread evenly over their positions, which is the mean over all their orders."""
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
    questions = [_answers(of_x) for of_x in outcomes_by_x(outcomes)]
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
    questions = [_answers(of_x) for of_x in outcomes_by_x(outcomes)]
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
