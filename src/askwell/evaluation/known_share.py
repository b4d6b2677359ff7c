"""How many x's an LM knows an answer to: those that some of its prompts answer correctly, with luck taken out.

An LM may know what only one of its prompts finds, and then the mixture's best answer is wrong. So an x counts as
answered if some prompt's best answer is right; prompts that hold the last 5 % of the weight for x do not count.

Several answers are right by luck more often than one. How often, the other x's tell: luck is the fraction of them for
which the same answers would be right. If the LM knows nothing about an x, no prompt answers it with a probability of
1 - luck; so every x that is not answered stands for 1 / (1 - luck) x's that are not known (Horvitz and Thompson).
"""

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from statistics import fmean, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from askwell.answers.strategy import PromptAnswers

WEIGHT = 0.95
"""Answers count until the prompts that give them hold this much of the weight: the last few prompts for an x seldom
know more, and each of their answers may be right by luck."""
MOST_LUCK = 0.95
"""So that no x stands for more than 20."""


@dataclass(frozen=True)
class KnownShare:
    """An estimate of how many x's the LM knows an answer to; fractions are from 0 to 1."""

    questions: int
    answered: float
    """X's that some prompt answers correctly."""
    luck: float
    """The mean fraction of other x's for which the answers to an x would be right."""
    known: float
    """The estimate. What an LM can work out from what else it knows about x counts as known."""
    low: float
    high: float
    """Two standard errors below and above."""


def given_answers(answers: "PromptAnswers") -> list[set[int]]:
    """Return the best answers of the prompts to each x, by their numbers: those that most weight gives, until they have
    WEIGHT of it."""
    found = []
    for best, weights in zip(answers.best.tolist(), answers.weights.tolist(), strict=True):
        by_answer: dict[int, float] = defaultdict(float)
        for answer, weight in zip(best, weights, strict=True):
            by_answer[answer] += weight
        given, total = set(), 0.0
        for answer in sorted(by_answer, key=lambda one: (-by_answer[one], one)):
            if total >= WEIGHT * sum(weights):
                break
            given.add(answer)
            total += by_answer[answer]
        found.append(given)
    return found


def luck_of(given: Sequence[Collection[int]], golds: Sequence[Collection[int]]) -> list[float]:
    """Return, for each x, the fraction of the other x's for which the answers given to it would be right."""
    right_for: dict[int, set[int]] = defaultdict(set)
    for number, of_x in enumerate(golds):
        for gold in of_x:
            right_for[gold].add(number)
    others = len(golds) - 1
    return [
        len(set().union(*(right_for[answer] for answer in answers if answer in right_for)) - {number}) / others
        for number, answers in enumerate(given)
    ]


def known_share(given: Sequence[Collection[int]], golds: Sequence[Collection[int]]) -> KnownShare | None:
    """Estimate how many x's are known from the answers of the prompts to each, and its right answers; None for fewer
    than two x's."""
    if len(given) < 2:
        return None
    answered = [any(answer in of_x for answer in answers) for answers, of_x in zip(given, golds, strict=True)]
    return without_luck(answered, luck_of(given, golds))


def without_luck(answered: Sequence[bool], luck: Sequence[float]) -> KnownShare:
    """Estimate how many x's are known from whether each is answered, and by how much luck it would be.

    For the standard error, two x's that are known and two that are not are added: if all are answered, or none, the
    estimate is still not certain (Agresti and Coull).
    """
    known = [1.0 if a else 1 - 1 / (1 - min(q, MOST_LUCK)) for a, q in zip(answered, luck, strict=True)]
    mean, error = fmean(known), stdev([*known, 1.0, 1.0, 0.0, 0.0]) / math.sqrt(len(known) + 4)
    low, estimate, high = (min(max(value, 0.0), 1.0) for value in (mean - 2 * error, mean, mean + 2 * error))
    return KnownShare(len(known), fmean(answered), fmean(luck), estimate, low, high)


def mean_of_runs(found: Sequence[KnownShare | None]) -> KnownShare | None:
    """Return the means over several runs, weighted by their x's, and all their x's; None if a run has no estimate.

    The interval is the mean of the runs' own, since runs of other seeds ask about the same x's.
    """
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return None
    total = sum(one.questions for one in known)
    names = [field.name for field in fields(KnownShare)][1:]
    means = {name: sum(getattr(one, name) * one.questions for one in known) / total for name in names}
    return KnownShare(questions=total, **means)
