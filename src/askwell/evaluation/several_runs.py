"""Several runs of one relation, such as over seeds: whether they agree, and the mean and spread of their scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, stdev

import numpy as np

from askwell.errors import BadOption, UserMistake
from askwell.evaluation.calibration import outcomes_by_x, questions_of
from askwell.evaluation.outcomes import Outcome


@dataclass(frozen=True)
class RunPair:
    """Two runs, compared on the questions that both were asked."""

    first: int
    second: int
    questions: int
    same: float
    """The fraction of questions with the same best answer."""
    right: int
    """Questions that at least one of the two answers right."""
    same_of_right: float | None
    """The fraction of these with the same best answer; None if there are none."""


@dataclass(frozen=True)
class RunConsistency:
    """Whether runs that differ only in their seed give the same answers."""

    runs: int
    pairs: tuple[RunPair, ...]
    same: float
    """The mean over all pairs of runs."""
    same_of_right: float | None
    """The mean over the pairs that have it."""


def run_consistency(runs: Sequence[Sequence[Outcome]]) -> RunConsistency:
    """How far runs agree, from their outcomes on the same facts; questions that only one of two was asked are left out.

    Answers are compared as words, so the runs may be of different mixtures and LMs.
    """
    if len(runs) < 2:
        raise BadOption("consistency over seeds needs at least two runs")
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
        raise UserMistake("two runs have no question in common, so their answers cannot be compared")
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


@dataclass(frozen=True)
class Spread:
    """Several values of the same score."""

    runs: int
    mean: float
    deviation: float | None
    """The standard deviation of a single run, with n - 1 in its denominator; None for one run."""
    low: float
    high: float


def spread_of(values: Sequence[float]) -> Spread:
    """The mean and spread of the values of some runs."""
    if not values:
        raise BadOption("there are no runs to average over")
    deviation = stdev(values) if len(values) > 1 else None
    return Spread(len(values), fmean(values), deviation, min(values), max(values))


def spreads_of(scores: Sequence[Mapping[str, float]]) -> dict[str, Spread]:
    """The mean and spread of each score of some runs, under the names that all of them have."""
    names = [name for name in scores[0] if all(name in of_run for of_run in scores)] if scores else []
    if not names:
        raise BadOption("the runs have no score in common")
    return {name: spread_of([of_run[name] for of_run in scores]) for name in names}
