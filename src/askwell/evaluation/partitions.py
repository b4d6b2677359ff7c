"""Partitions of outcomes (seen and unseen ys, easy and hard facts) and the scores of their parts."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence

from askwell.data.facts import Relation
from askwell.data.split_audit import is_inside
from askwell.evaluation.metrics import scores_of
from askwell.evaluation.outcomes import Outcome

Parts = dict[str, list[Outcome]]
PartScores = dict[str, int | float]
"""The number of facts of a part, and their scores."""

SEEN, UNSEEN = "seen y", "unseen y"
INSIDE, NOT_INSIDE = "y in x", "y not in x"
EASY, HARD, NOT_ASKED = "easy", "hard", "no control"
_EDGES = (1, 10, 100)
_FREQUENCIES = ("0", "1–9", "10–99", "100+")
"""How many train lines have y: each edge begins a part."""
_LENGTHS = ("1", "2", "3", "4+")
"""How many words x has, split at white space."""


def parted(outcomes: Sequence[Outcome], label: Callable[[Outcome], str], order: Sequence[str]) -> Parts:
    """Partition outcomes by their labels, in this order; parts without an outcome are left out."""
    parts: Parts = {name: [] for name in order}
    for outcome in outcomes:
        parts[label(outcome)].append(outcome)
    return {name: members for name, members in parts.items() if members}


def by_control(outcomes: Sequence[Outcome], controls: Sequence[Sequence[Outcome]]) -> Parts:
    """Partition outcomes into easy facts, which some control gets right (rank 1), and hard ones, which all get wrong.

    Facts that no control was asked about are a part of their own.
    """
    easy, asked = set(), set()
    for control in controls:
        for outcome in control:
            fact = (outcome.relation, outcome.x, outcome.y)
            asked.add(fact)
            if outcome.rank <= 1:
                easy.add(fact)

    def label(outcome: Outcome) -> str:
        fact = (outcome.relation, outcome.x, outcome.y)
        return EASY if fact in easy else HARD if fact in asked else NOT_ASKED

    return parted(outcomes, label, [EASY, HARD, NOT_ASKED])


def partitions_of(
    outcomes: Sequence[Outcome], relation: Relation, controls: Sequence[Sequence[Outcome]] = ()
) -> dict[str, Parts]:
    """Return all partitions of the outcomes of a relation by name: by control, if there are any, by whether and how
    often y occurs in train, by whether it is a part of x regardless of case (LAMA-UHN has those where it is not), and
    by the length of x."""
    lines = Counter(fact.y for fact in relation.train)

    def frequency(outcome: Outcome) -> str:
        return _FREQUENCIES[bisect_right(_EDGES, lines[outcome.y])]

    def length(outcome: Outcome) -> str:
        return _LENGTHS[min(len(outcome.x.split()), len(_LENGTHS)) - 1]

    by_ease = {"control": by_control(outcomes, controls)} if controls else {}
    return by_ease | {
        "seen y": parted(outcomes, lambda one: SEEN if one.y in lines else UNSEEN, [SEEN, UNSEEN]),
        "y in x": parted(outcomes, lambda one: [NOT_INSIDE, INSIDE][is_inside(one.y, one.x)], [INSIDE, NOT_INSIDE]),
        "frequency of y": parted(outcomes, frequency, _FREQUENCIES),
        "length of x": parted(outcomes, length, _LENGTHS),
    }


def scores_of_parts(parts: Parts) -> dict[str, PartScores]:
    """Return the number of facts of each part, and their scores."""
    return {label: {"facts": len(outcomes), **scores_of(outcomes)} for label, outcomes in parts.items()}
