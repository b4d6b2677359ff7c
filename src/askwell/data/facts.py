"""Facts, and the relation that they belong to."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import chain, combinations, groupby
from operator import attrgetter
from typing import Literal, get_args, overload

from askwell.errors import BadOption, checked_or, did_you_mean
from askwell.views.document import Document, overview
from askwell.views.printable import counted
from askwell.views.to_files import AsFrame, Records
from askwell.views.to_text import ShowsItself

SplitName = Literal["train", "dev", "test"]
SPLITS: tuple[SplitName, ...] = get_args(SplitName)
SPLIT_FILES: dict[str, SplitName] = {f"{name}.jsonl": name for name in SPLITS}
"""The files of a folder of facts, and the split that each holds."""


@dataclass(frozen=True, order=True, slots=True)
class Fact:
    """A pair of a relation: y is a right answer for x."""

    x: str
    y: str
    aliases: tuple[str, ...] = field(default=(), compare=False, kw_only=True)
    """Other right answers for x that are not facts to be asked themselves, such as other names of y."""


@dataclass(frozen=True)
class Counts:
    """Counts of repeated and leaked facts, for anyone who reads a score on them.

    "Lines" counts repeated facts each time, "facts" counts distinct pairs. The two differ: 45 distinct facts of T-REx
    original are in both train and test, but they fill 52 lines of test.
    """

    read: int
    """Lines read, over all splits, before any was removed."""
    duplicates_train: int
    """Lines of train that repeat an earlier line."""
    duplicates_dev: int
    duplicates_test: int
    removed: int
    """Repeated lines that were removed before we split a file ourselves."""
    train_dev: int
    """Facts in both train and dev."""
    train_test: int
    dev_test: int
    in_two_splits: int
    """Facts in two splits or in all three."""
    test_in_train: int
    """Lines of test whose fact is also in train: a score on them may be due to memorisation."""
    several_golds: int
    """How many x's have several right y's, over all splits."""

    @classmethod
    def of(cls, train: Iterable[Fact], dev: Iterable[Fact], test: Iterable[Fact], removed: int = 0) -> "Counts":
        """Return the counts of three splits; `removed` repeated lines were taken out of them before."""
        lines = {"train": tuple(train), "dev": tuple(dev), "test": tuple(test)}
        facts = {name: frozenset(split) for name, split in lines.items()}
        shared = {(one, other): facts[one] & facts[other] for one, other in combinations(facts, 2)}
        return cls(
            read=sum(map(len, lines.values())) + removed,
            **{f"duplicates_{name}": len(lines[name]) - len(facts[name]) for name in lines},
            removed=removed,
            **{f"{one}_{other}": len(both) for (one, other), both in shared.items()},
            in_two_splits=len(frozenset().union(*shared.values())),
            test_in_train=sum(fact in facts["train"] for fact in lines["test"]),
            several_golds=sum(ys > 1 for ys in Counter(fact.x for fact in frozenset().union(*facts.values())).values()),
        )

    @property
    def duplicates(self) -> int:
        """Return how many lines repeat a fact of their split, kept (given splits) or removed (a file that we split)."""
        return self.duplicates_train + self.duplicates_dev + self.duplicates_test + self.removed

    def lines(self) -> list[str]:
        """Return what is worth mentioning, one sentence each; empty if there is nothing."""
        of_test = f"{self.test_in_train} {'line' if self.test_in_train == 1 else 'lines'} of test"
        told = (
            (self.duplicates_train, "line repeats", "lines repeat", "a fact of train"),
            (self.duplicates_dev, "line repeats", "lines repeat", "a fact of dev"),
            (self.duplicates_test, "line repeats", "lines repeat", "a fact of test"),
            (self.removed, "repeated line", "repeated lines", "removed before the split"),
            (self.train_dev, "fact is", "facts are", "in both train and dev"),
            (self.train_test, "fact is", "facts are", f"in both train and test ({of_test})"),
            (self.dev_test, "fact is", "facts are", "in both dev and test"),
            (self.several_golds, "x has", "x have", "several right y's"),
        )
        return [f"{count} {one if count == 1 else many} {rest}" for count, one, many, rest in told if count]

    def as_json(self) -> dict[str, int]:
        """Return all counts by name, ready for JSON."""
        return {**asdict(self), "duplicates": self.duplicates}


@dataclass(frozen=True)
class Origin:
    """Where facts were read and how they were split, so that they can be read again."""

    source: str | None = None
    """A name, or the path of a file or folder on this machine; None for facts in memory."""
    x: str | None = None
    """The column of x, if it has another name."""
    y: str | None = None
    split_by: str | None = None
    """The rule of the split; None for the usual one, and for facts that came with their splits."""
    seed: int | None = None
    """Of the split; None for facts that came with their splits."""


@dataclass(frozen=True)
class SplitLines:
    """The facts of a relation in the order of their lines, repeated ones kept."""

    name: str
    train: tuple[Fact, ...]
    dev: tuple[Fact, ...]
    test: tuple[Fact, ...]

    @property
    def splits(self) -> dict[str, tuple[Fact, ...]]:
        """Return the facts of each split."""
        return {"train": self.train, "dev": self.dev, "test": self.test}


@checked_or("a Relation is made by askwell.load_relation, from a name, a file, pairs, a dictionary or a frame")
@dataclass(frozen=True, repr=False)
class Relation(ShowsItself, SplitLines, AsFrame):
    """The facts of one relation in canonical order: sorted by x, then y, repeated ones kept."""

    counts: Counts
    origin: Origin = field(default=Origin(), compare=False, kw_only=True)

    def __post_init__(self) -> None:
        # Sorted here, not by the reader, so that no relation can carry the order of lines on disk into a result.
        for name, facts in self.splits.items():
            object.__setattr__(self, name, canonical(facts))

    def __len__(self) -> int:
        return sum(map(len, self.splits.values()))

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Fact]:
        return chain(*self.splits.values())

    @overload
    def __getitem__(self, which: int) -> Fact: ...
    @overload
    def __getitem__(self, which: str | slice) -> tuple[Fact, ...]: ...
    def __getitem__(self, which: int | str | slice) -> Fact | tuple[Fact, ...]:
        """Return a split by its name, or facts by their number: those of train come first, then dev, then test."""
        if isinstance(which, str):
            return self.split(which)
        if isinstance(which, int) and not -len(self) <= which < len(self):
            raise IndexError(f"there is no fact {which}: {self.name} has {counted(len(self), 'fact')}, counted from 0")
        return tuple(self)[which]

    def __contains__(self, fact: object) -> bool:
        """Return whether it has this fact: a Fact, or a pair of x and y."""
        return any(fact == one or fact == (one.x, one.y) for one in self)

    def records(self) -> Records:
        """Return a row for each fact: its split, x and y."""
        return [{"split": name, "x": fact.x, "y": fact.y} for name, facts in self.splits.items() for fact in facts]

    def summary(self) -> Document:
        """Return its splits with their sizes and an example of each, and what is worth mentioning about them."""
        rows = [
            (name, f"{len(facts):,}", f"{facts[0].x} → {facts[0].y}" if facts else "")
            for name, facts in self.splits.items()
        ]
        ys = len({fact.y for facts in self.splits.values() for fact in facts})
        facts = sum(map(len, self.splits.values()))
        heading = f"Relation {self.name}: {counted(facts, 'fact')}, {counted(ys, 'different y')}"
        return overview(heading, ("split", "facts", "such as"), rows, ("facts",), tuple(self.counts.lines()))

    @classmethod
    def of(
        cls,
        name: str,
        train: Iterable[Fact],
        dev: Iterable[Fact],
        test: Iterable[Fact],
        *,
        removed: int = 0,
        origin: Origin = Origin(),
    ) -> "Relation":
        """Return the relation of three splits, with their counts."""
        train, dev, test = tuple(train), tuple(dev), tuple(test)
        if not all(isinstance(fact, Fact) for facts in (train, dev, test) for fact in facts):
            raise BadOption(
                "Relation.of takes Fact(x, y) objects; for pairs, write askwell.load_relation({'train': …, 'dev': …, "
                "'test': …})"
            )
        return cls(name, train, dev, test, Counts.of(train, dev, test, removed), origin=origin)

    @cached_property
    def golds(self) -> Mapping[str, tuple[str, ...]]:
        """Return for each x all its right ys over all splits and their aliases, distinct and sorted."""
        by_x = groupby(canonical((*self.train, *self.dev, *self.test)), key=attrgetter("x"))
        return {x: tuple(sorted({y for fact in facts for y in (fact.y, *fact.aliases)})) for x, facts in by_x}

    def split(self, name: str) -> tuple[Fact, ...]:
        """Return the facts of one split."""
        if name not in self.splits:
            raise BadOption(f"there is no split {name!r}{did_you_mean(name, SPLITS)}")
        return self.splits[name]

    @cached_property
    def digest(self) -> str:
        """Return SHA-256 of the content of the splits: the same for the same facts, whatever name or file they came
        from."""
        content = [[[fact.x, fact.y, *fact.aliases] for fact in split] for split in self.splits.values()]
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode("ascii")).hexdigest()


def canonical(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """Return the facts sorted by x, then y."""
    return tuple(sorted(facts, key=lambda fact: (fact.x, fact.y)))  # the key is several times faster than Fact.__lt__


def facts_jsonl(facts: Iterable[Fact]) -> str:
    """Return the text of a file of facts, one per line."""
    records = ({"sub": fact.x, "obj": fact.y} | ({"aliases": fact.aliases} if fact.aliases else {}) for fact in facts)
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
