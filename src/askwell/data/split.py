"""Splits facts that are not split yet into train, dev and test, and samples a relation's facts."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations, islice, permutations, product
from math import gcd, lcm
from random import Random
from typing import Literal, NoReturn, get_args

from askwell.data.facts import Counts, Fact, Origin, Relation, canonical
from askwell.errors import BadOption, UsageError

SplitRule = Literal["random", "distinct-y", "stratified"]
"""random: all ys of an x stay together. distinct-y: no y is in two sets, but an x with several ys can be. stratified:
like random, and each y has the same share of every set, as far as its facts allow."""
RULES: tuple[str, ...] = get_args(SplitRule)

Shares = tuple[int, ...]
"""The relative sizes of train, dev and test, or of the folds."""
EIGHTY_TEN_TEN: Shares = (8, 1, 1)


def split_shares(ratio: str | Sequence[float | int]) -> Shares:
    """Return the shares of train, dev and test in 70-15-15, (70, 15, 15) or (0.7, 0.15, 0.15), in lowest terms."""
    given = ratio.split("-") if isinstance(ratio, str) else ratio if isinstance(ratio, Sequence) else [ratio]
    parts = [str(part) for part in given]
    try:
        exact = [Fraction(part.strip()) for part in parts]
    except ValueError:
        exact = []
    if len(exact) != 3 or min(exact) < 0 or not any(exact):
        raise BadOption(
            f"`ratio` {ratio}: write three numbers for train, dev and test, such as 70-15-15; 0-0-100 makes all of "
            "them test facts, to be scored but not trained on",
            ratio="--split-ratio",
        )
    scale = lcm(*(part.denominator for part in exact))
    train, dev, test = (int(part * scale) for part in exact)
    common = gcd(train, dev, test)
    return train // common, dev // common, test // common


def rule_with(
    rule: SplitRule | str | None, ratio: str | Sequence[float | int] | None, fold: tuple[int, int] | None = None
) -> str | None:
    """Return the rule with its ratio and fold, as it is recorded: "stratified 70-15-15", "random fold 2/5"; None if
    nothing is given."""
    if ratio is None and fold is None:
        return rule
    shares = [] if ratio is None else ["-".join(map(str, split_shares(ratio)))]
    return " ".join([rule or "random", *shares, *([] if fold is None else [f"fold {fold[0]}/{fold[1]}"])])


_FOLD = re.compile(r"fold (\d{1,9})/(\d{1,9})$")


def fold_of(rule: str | None) -> tuple[int, int] | None:
    """Return which fold of how many a recorded rule takes as test, counted from 1; None if it has no folds."""
    found = _FOLD.search(rule or "")
    return None if found is None else (int(found[1]), int(found[2]))


def refuse_rule(what: str, rule: str) -> NoReturn:
    """Refuse a rule for facts that came with their splits."""
    if fold_of(rule) is not None:
        raise BadOption(
            f"`folds` is for facts that are not split yet, such as those of a single file; {what} has its own train, "
            "dev and test",
            folds="--folds",
        )
    raise BadOption(f"{what} is already split; leave out the rule {rule!r}")


def split_facts(
    facts: Iterable[Fact], rule: SplitRule | str, seed: int
) -> tuple[tuple[Fact, ...], tuple[Fact, ...], tuple[Fact, ...]]:
    """Return train, dev and test, as close to 80-10-10 as the groups allow, none empty, without repeated facts.

    A rule can name another ratio: "random 70-15-15"; a set whose share is 0 is empty. With "random fold 2/5", facts are
    cut into five folds of one size, each of which is test once: here the second, while the others are split into train
    and dev in the proportion of the ratio. The result depends on the set of facts, the rule and the seed, not on the
    order of the facts.
    """
    fold = fold_of(rule)
    rule, _, ratio = _FOLD.sub("", str(rule)).strip().partition(" ")
    if rule not in RULES:
        raise BadOption(f"there is no split rule {rule!r}: choose one of {', '.join(RULES)}")
    shares = split_shares(ratio) if ratio else EIGHTY_TEN_TEN
    if fold is None:
        train, dev, test = _divided(facts, rule, shares, seed, "train, dev and test")
        return train, dev, test
    number, count = fold
    if not 1 <= number <= count or count < 2:
        raise BadOption(f"`folds` {count}: cut the facts into at least two folds", folds="--folds")
    folds = _divided(facts, rule, (1,) * count, seed, f"{count} folds")
    others = (fact for place, part in enumerate(folds, start=1) if place != number for fact in part)
    train, dev, _ = _divided(others, rule, (*shares[:2], 0), f"{seed} fold {number}", "train and dev")
    return train, dev, folds[number - 1]


def _divided(
    facts: Iterable[Fact], rule: str, shares: Shares, seed: int | str, what: str
) -> tuple[tuple[Fact, ...], ...]:
    """Return the facts, without repeated ones, in sets of these shares, none of them empty unless its share is 0."""
    kept_together = "y" if rule == "distinct-y" else "x"
    groups: dict[str, list[Fact]] = {}
    for fact in canonical(set(facts)):
        groups.setdefault(getattr(fact, kept_together), []).append(fact)
    sets_wanted = sum(share > 0 for share in shares)
    if len(groups) < sets_wanted:
        raise UsageError(
            f"splitting facts into {what} takes at least {sets_wanted} distinct {kept_together}"
            f" (all facts of one {kept_together} stay together), but there are {len(groups)}"
        )
    order = list(groups)
    Random(str(seed)).shuffle(order)  # as text, because Random(-1) is Random(1)
    if rule == "stratified":
        return tuple(map(canonical, _stratified([groups[key] for key in order], shares)))
    sets = _Sets(sum(map(len, groups.values())), shares)
    for key in order:
        sets.add_where_it_fits(groups[key])
    sets.improve()
    return tuple(
        canonical(fact for groups in by_size.values() for group in groups for fact in group) for by_size in sets.by_size
    )


def split_relation(name: str, facts: Sequence[Fact], rule: str | None, seed: int) -> Relation:
    """Return the relation of facts that are split here, by default at random."""
    train, dev, test = split_facts(facts, rule or "random", seed)
    removed, origin = len(facts) - len(train) - len(dev) - len(test), Origin(split_by=rule, seed=seed)
    return Relation.of(name, train, dev, test, removed=removed, origin=origin)


def _stratified(groups: list[list[Fact]], shares: Shares) -> list[list[Fact]]:
    """Return sets, in each of which every y has its share of groups, up to one group; none is empty.

    The remainder of a y's groups goes to the set that is furthest behind, so that the sizes are right overall.
    """
    strata: dict[tuple[str, ...], list[list[Fact]]] = {}
    for group in groups:
        strata.setdefault(tuple(fact.y for fact in group), []).append(group)
    sets: list[list[list[Fact]]] = [[] for _ in shares]
    whole, dealt = sum(shares), 0
    for _, stratum in sorted(strata.items()):
        dealt += len(stratum)
        quotas = [len(stratum) * share // whole for share in shares]
        while sum(quotas) < len(stratum):
            # Ties go to train, so that a y with a single fact is learned from.
            behind = [
                dealt * share - whole * (len(set_) + q) for share, set_, q in zip(shares, sets, quotas, strict=True)
            ]
            quotas[behind.index(max(behind))] += 1
        left = iter(stratum)
        for set_, quota in zip(sets, quotas, strict=True):
            set_ += islice(left, quota)
    for empty in (set_ for set_, share in zip(sets, shares, strict=True) if share and not set_):
        empty.append(max(sets, key=len).pop())
    return [[fact for group in set_ for fact in group] for set_ in sets]


_Step = tuple[int, int, int, int]
"""Moves a group from one set to another: both sets, its size, and that of a group moved in return (0: none)."""


class _Sets:
    """Sets of groups. Groups are kept by size, since the value of a step depends on nothing else."""

    def __init__(self, total: int, shares: Shares) -> None:
        self.total, self.shares, self.whole = total, shares, sum(shares)
        self.by_size: tuple[dict[int, list[list[Fact]]], ...] = tuple({} for _ in shares)
        self.sizes = [0] * len(shares)

    def add_where_it_fits(self, group: list[Fact]) -> None:
        """Add to dev, test or a later fold while they have room, so that a dominant y always ends up in train."""
        room = (
            place
            for place in range(1, len(self.sizes))
            if self.whole * (self.sizes[place] + len(group)) <= self.shares[place] * self.total
        )
        self._add(next(room, 0), group)

    def improve(self) -> None:
        """Move or swap groups, the best step first, until no single step brings the sizes closer to their shares."""
        while True:
            best = min(self._steps(), key=self._badness_after)
            if self._badness_after(best) >= self._badness_after((0, 0, 0, 0)):
                return
            source, target, size, back = best
            given, taken = self._pop(source, size), self._pop(target, back)
            self._add(target, given)
            self._add(source, taken)

    def _steps(self) -> Iterator[_Step]:
        for source, target in permutations(range(len(self.sizes)), 2):
            for size in self.by_size[source]:
                yield source, target, size, 0
        for source, target in combinations(range(len(self.sizes)), 2):
            for size, back in product(self.by_size[source], self.by_size[target]):
                yield source, target, size, back

    def _badness_after(self, step: _Step) -> tuple[int, int]:
        """Return how far sizes are from their shares: empty sets first, then distances, in integers for exact ties."""
        source, target, size, back = step
        sizes = self.sizes.copy()
        sizes[source] += back - size
        sizes[target] += size - back
        distance = sum(
            abs(self.whole * size - share * self.total) for size, share in zip(sizes, self.shares, strict=True)
        )
        return sum(not size for size, share in zip(sizes, self.shares, strict=True) if share), distance

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


@dataclass(frozen=True, repr=False)
class SampledRelation(Relation):
    """A sample of a relation's facts. The golds are those of the whole relation: a right answer counts as right even if
    it was not sampled."""

    whole: Relation

    @cached_property
    def golds(self) -> Mapping[str, tuple[str, ...]]:
        """Return for each x all its right ys, including those of facts that were not drawn."""
        return self.whole.golds

    @cached_property
    def digest(self) -> str:
        """Return SHA-256 of the sample and of the whole, on which the golds depend."""
        drawn = Relation.of(self.name, self.train, self.dev, self.test)
        return hashlib.sha256(f"{drawn.digest} of {self.whole.digest}".encode()).hexdigest()


def sample(relation: Relation, *, train: int | None, dev: int | None, test: int | None, seed: int) -> Relation:
    """Return the relation with at most that many facts of each split; with one seed, larger samples contain smaller
    ones."""
    sizes = {"train": train, "dev": dev, "test": test}
    if all(most is None or most >= len(relation.split(name)) for name, most in sizes.items()):
        return relation
    drawn = {name: list(facts) for name, facts in relation.splits.items()}
    for name, facts in drawn.items():
        if sizes[name] is not None:
            Random(f"{seed} {name}").shuffle(facts)
            del facts[sizes[name] :]
    kept = {name: tuple(facts) for name, facts in drawn.items()}
    counts = Counts.of(kept["train"], kept["dev"], kept["test"])
    return SampledRelation(relation.name, kept["train"], kept["dev"], kept["test"], counts=counts, whole=relation)
