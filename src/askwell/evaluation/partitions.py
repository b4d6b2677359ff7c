"""Partitions of outcomes (seen and unseen ys, easy and hard facts) and the scores of their parts."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from askwell.data.facts import Relation
from askwell.data.split_audit import is_inside
from askwell.errors import BadOption
from askwell.evaluation.metrics import Scores, scores_of
from askwell.evaluation.outcomes import Outcome

Parts = dict[str, list[Outcome]]
Known = TypeVar("Known")

SEEN, UNSEEN = "seen y", "unseen y"
INSIDE, NOT_INSIDE = "y in x", "y not in x"
EASY, HARD, NOT_ASKED = "easy", "hard", "no control"


def by_seen_y(outcomes: Sequence[Outcome], relations: Mapping[str, Relation]) -> Parts:
    """Partition outcomes by whether a train fact of the relation has this y."""
    ys = {name: {fact.y for fact in relation.train} for name, relation in relations.items()}
    return _parts(outcomes, lambda outcome: SEEN if outcome.y in _of(ys, outcome) else UNSEEN, [SEEN, UNSEEN])


def by_y_in_x(outcomes: Sequence[Outcome]) -> Parts:
    """Partition outcomes by whether y is a part of x, regardless of case; LAMA-UHN is the second part."""
    label = [NOT_INSIDE, INSIDE]
    return _parts(outcomes, lambda outcome: label[is_inside(outcome.y, outcome.x)], [INSIDE, NOT_INSIDE])


def by_cardinality(outcomes: Sequence[Outcome], cardinalities: Mapping[str, str]) -> Parts:
    """Partition outcomes by the given kind of each relation (1-1, N-1, N-M)."""
    return _parts(outcomes, lambda outcome: _of(cardinalities, outcome), sorted({*cardinalities.values()}))


def by_frequency_of_y(
    outcomes: Sequence[Outcome], relations: Mapping[str, Relation], *, edges: Sequence[int] = (1, 10, 100)
) -> Parts:
    """Partition outcomes by how many train lines of the relation have y; each edge begins a part: 0, 1–9, 10–99,
    100+."""
    if not edges or list(edges) != sorted({*edges}) or edges[0] < 1:
        raise BadOption(f"the edges {list(edges)} do not rise from 1 or more")
    counts = {name: Counter(fact.y for fact in relation.train) for name, relation in relations.items()}
    labels = _ranges([0, *edges])
    return _parts(outcomes, lambda outcome: labels[bisect_right(edges, _of(counts, outcome)[outcome.y])], labels)


def by_length_of_x(outcomes: Sequence[Outcome], *, longest: int = 4) -> Parts:
    """Partition outcomes by the number of words of x (split at white space); the last part has `longest` and more."""
    if longest < 2:
        raise BadOption(f"{longest} words: two lengths at least make parts")
    labels = _ranges(range(1, longest + 1))
    return _parts(outcomes, lambda outcome: labels[min(len(outcome.x.split()), longest) - 1], labels)


def by_control(outcomes: Sequence[Outcome], controls: Iterable[Sequence[Outcome]]) -> Parts:
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

    return _parts(outcomes, label, [EASY, HARD, NOT_ASKED])


def partitions_of(
    outcomes: Sequence[Outcome],
    relations: Mapping[str, Relation],
    controls: Iterable[Sequence[Outcome]] = (),
    cardinalities: Mapping[str, str] | None = None,
) -> dict[str, Parts]:
    """Return all partitions of outcomes by name; those by control and by cardinality only if these are given."""
    controls = list(controls)
    partitions = {
        "control": by_control(outcomes, controls) if controls else None,
        "seen y": by_seen_y(outcomes, relations),
        "y in x": by_y_in_x(outcomes),
        "cardinality": by_cardinality(outcomes, cardinalities) if cardinalities is not None else None,
        "frequency of y": by_frequency_of_y(outcomes, relations),
        "length of x": by_length_of_x(outcomes),
    }
    return {name: parts for name, parts in partitions.items() if parts is not None}


def scores_of_parts(parts: Parts) -> dict[str, Scores]:
    """Return the scores of each part, as means over its facts."""
    return {label: scores_of(outcomes) for label, outcomes in parts.items()}


def _parts(outcomes: Sequence[Outcome], label: Callable[[Outcome], str], order: Sequence[str]) -> Parts:
    parts: Parts = {name: [] for name in order}
    for outcome in outcomes:
        parts[label(outcome)].append(outcome)
    return {name: members for name, members in parts.items() if members}


def _of(known: Mapping[str, Known], outcome: Outcome) -> Known:
    if outcome.relation not in known:
        raise BadOption(f"nothing is known about the relation {outcome.relation}, so its facts cannot be partitioned")
    return known[outcome.relation]


def _ranges(begins: Iterable[int]) -> list[str]:
    """Name the ranges that begin at these numbers: 0, 1–9, 10–99, 100+."""
    begins = list(begins)
    closed = [str(begin) if end == begin + 1 else f"{begin}–{end - 1}" for begin, end in pairwise(begins)]
    return [*closed, f"{begins[-1]}+"]
