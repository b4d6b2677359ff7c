"""Splits facts into train, dev and test where no split is given, and samples a relation's facts."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, permutations
from random import Random
from typing import Literal, NamedTuple, get_args

from askwell.data.facts import Counts, Fact, Relation, canonical
from askwell.errors import BadOption, UserMistake

SplitRule = Literal["random", "distinct-y"]
"""random: all ys of an x stay together. distinct-y: no y is in two sets, but an x with several ys can be."""

_TENTHS = (8, 1, 1)


def split_facts(
    facts: Iterable[Fact], rule: SplitRule | str, seed: int
) -> tuple[tuple[Fact, ...], tuple[Fact, ...], tuple[Fact, ...]]:
    """Train, dev and test, as near 80-10-10 as the groups allow, none empty; repeated facts are removed first.

    The result depends on the set of facts, the rule and the seed, not on the order of the facts.
    """
    if rule not in get_args(SplitRule):
        raise BadOption(f"there is no split rule {rule!r}: choose one of {', '.join(get_args(SplitRule))}")
    kept_together = "x" if rule == "random" else "y"
    groups: dict[str, list[Fact]] = {}
    for fact in canonical(set(facts)):
        groups.setdefault(getattr(fact, kept_together), []).append(fact)
    if len(groups) < 3:
        raise UserMistake(
            f"splitting facts into train, dev and test takes at least 3 distinct {kept_together}"
            f" (all facts of one {kept_together} stay together), but there are {len(groups)}"
        )
    order = list(groups)
    Random(str(seed)).shuffle(order)  # as text, because Random(-1) is Random(1)
    sets = _Sets(sum(map(len, groups.values())))
    for key in order:
        sets.add_where_it_fits(groups[key])
    sets.improve()
    train, dev, test = (
        canonical(fact for groups in by_size.values() for group in groups for fact in group) for by_size in sets.by_size
    )
    return train, dev, test


class _Step(NamedTuple):
    """Give a group of `size` from one set to another, and take one of `back` for it (0: none)."""

    source: int
    target: int
    size: int
    back: int


class _Sets:
    """Three sets of groups. Groups are kept by size, since a step's worth depends on nothing else."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.by_size: tuple[dict[int, list[list[Fact]]], ...] = ({}, {}, {})
        self.sizes = [0, 0, 0]

    def add_where_it_fits(self, group: list[Fact]) -> None:
        """Dev or test while they have room, so that a dominant y always ends in train."""
        room = (place for place in (1, 2) if 10 * (self.sizes[place] + len(group)) <= _TENTHS[place] * self.total)
        self._add(next(room, 0), group)

    def improve(self) -> None:
        """Move or swap groups, the best step first, until no single step brings the sizes nearer to 80-10-10."""
        while True:
            best = min(self._steps(), key=self._badness_after)
            if self._badness_after(best) >= self._badness(self.sizes):
                return
            given, taken = self._pop(best.source, best.size), self._pop(best.target, best.back)
            self._add(best.target, given)
            self._add(best.source, taken)

    def _steps(self) -> Iterator[_Step]:
        for source, target in permutations(range(3), 2):
            for size in self.by_size[source]:
                yield _Step(source, target, size, 0)
        for source, target in combinations(range(3), 2):
            for size in self.by_size[source]:
                for back in self.by_size[target]:
                    yield _Step(source, target, size, back)

    def _badness_after(self, step: _Step) -> tuple[int, int]:
        sizes = self.sizes.copy()
        sizes[step.source] += step.back - step.size
        sizes[step.target] += step.size - step.back
        return self._badness(sizes)

    def _badness(self, sizes: list[int]) -> tuple[int, int]:
        """An empty set is worse than any distance; whole numbers, so that equal is equal."""
        distance = sum(abs(10 * size - tenths * self.total) for size, tenths in zip(sizes, _TENTHS, strict=True))
        return sizes.count(0), distance

    def _add(self, place: int, group: list[Fact]) -> None:
        if group:
            self.by_size[place].setdefault(len(group), []).append(group)
            self.sizes[place] += len(group)

    def _pop(self, place: int, size: int) -> list[Fact]:
        if not size:
            return []
        groups = self.by_size[place][size]
        group = groups.pop()
        if not groups:
            del self.by_size[place][size]
        self.sizes[place] -= size
        return group


@dataclass(frozen=True)
class SampledRelation(Relation):
    """Some facts of a relation. The golds stay those of the whole: a right answer is right, drawn or not."""

    whole: Relation

    @cached_property
    def golds(self) -> Mapping[str, tuple[str, ...]]:
        """For each x all its right ys, including those of facts that were not drawn."""
        return self.whole.golds

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the sample and of the whole, on which the golds depend."""
        drawn = Relation.of(self.name, self.train, self.dev, self.test)
        return hashlib.sha256(f"{drawn.digest} of {self.whole.digest}".encode()).hexdigest()


def sample(relation: Relation, *, train: int | None, dev: int | None, test: int | None, seed: int) -> Relation:
    """The relation with at most that many facts of each split; of one seed, larger samples contain the smaller ones."""
    sizes = {"train": train, "dev": dev, "test": test}
    if all(most is None or most >= len(relation.split(name)) for name, most in sizes.items()):
        return relation
    drawn = {name: list(facts) for name, facts in relation.splits.items()}
    for name, facts in drawn.items():
        if sizes[name] is not None:
            Random(f"{seed} {name}").shuffle(facts)
            del facts[sizes[name] :]
    splits = {name: tuple(facts) for name, facts in drawn.items()}
    counts = Counts.of(splits["train"], splits["dev"], splits["test"])
    return SampledRelation(relation.name, **splits, counts=counts, whole=relation)
