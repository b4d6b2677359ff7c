"""Audits the splits of a relation or a set: repeated and leaked facts, class balance, and what answers that need no
LM score."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from askwell.data.facts import Fact
from askwell.data.names import FactSet
from askwell.data.read_facts import SplitLines


@dataclass(frozen=True)
class RelationAudit:
    """The audit of one relation. Unless said otherwise a number counts lines of test, repeated ones each time."""

    name: str
    facts: dict[str, int]
    """Lines of each split."""
    duplicates: dict[str, int]
    """Lines of each split whose fact stands in that split already."""
    distinct: int
    """Distinct facts over all splits."""
    leaked_pairs: int
    """The fact stands in train too."""
    leaked_x: int
    """The x stands in train too, with this y or another."""
    in_dev: int
    """The fact stands in dev too."""
    dev_in_train: int
    """Lines of dev whose fact stands in train too."""
    unseen_y: int
    """No fact of train has this y."""
    y_in_x: int
    """y is a part of x, whatever the case of its letters."""
    several_golds: int
    """x has several right ys among the facts of test."""
    several_golds_all: int
    """x has several right ys among the facts of all splits."""
    majority: int
    """y is train's most common y."""
    copy_train_y: int
    """y is train's most common y for the same x."""
    copy_x: int
    """y is the longest of train's ys that stands inside x."""
    ys: dict[str, int]
    """Distinct ys of each split."""
    largest: int
    """y is test's most common y."""
    effective_ys: float
    """2^H, where H is the entropy in bits of the ys of test: as many equally common ys would be as hard to guess."""


def audit_relation(splits: SplitLines) -> RelationAudit:
    """The audit of one relation."""
    lines = {"train": splits.train, "dev": splits.dev, "test": splits.test}
    facts = {name: frozenset(split) for name, split in lines.items()}
    ys = {name: {fact.y for fact in split} for name, split in lines.items()}
    xs_of_train = {fact.x for fact in splits.train}
    golds_of_test, all_golds = _golds(facts["test"]), _golds(frozenset().union(*facts.values()))
    common, from_train, from_x = majority_y(splits.train), CopyFromTrain(splits.train), CopyFromX(splits.train)
    classes = Counter(fact.y for fact in splits.test)
    return RelationAudit(
        name=splits.name,
        facts={name: len(split) for name, split in lines.items()},
        duplicates={name: len(lines[name]) - len(facts[name]) for name in lines},
        distinct=len(frozenset().union(*facts.values())),
        leaked_pairs=sum(fact in facts["train"] for fact in splits.test),
        leaked_x=sum(fact.x in xs_of_train for fact in splits.test),
        in_dev=sum(fact in facts["dev"] for fact in splits.test),
        dev_in_train=sum(fact in facts["train"] for fact in splits.dev),
        unseen_y=sum(fact.y not in ys["train"] for fact in splits.test),
        y_in_x=sum(stands_in(fact.y, fact.x) for fact in splits.test),
        several_golds=sum(golds_of_test[fact.x] > 1 for fact in splits.test),
        several_golds_all=sum(all_golds[fact.x] > 1 for fact in splits.test),
        majority=sum(fact.y == common for fact in splits.test),
        copy_train_y=sum(fact.y == from_train.answer(fact.x) for fact in splits.test),
        copy_x=sum(fact.y == from_x.answer(fact.x) for fact in splits.test),
        ys={name: len(of_split) for name, of_split in ys.items()},
        largest=max(classes.values()),
        effective_ys=2 ** -sum(n / len(splits.test) * math.log2(n / len(splits.test)) for n in classes.values()),
    )


@dataclass(frozen=True)
class SetAudit:
    """The audit of a set of relations. Facts of two relations are never the same."""

    name: str
    relations: tuple[RelationAudit, ...]

    def total(self, count: str) -> int:
        """The sum of a count over the relations."""
        return sum(getattr(relation, count) for relation in self.relations)

    def by_split(self, count: str) -> dict[str, int]:
        """The sums of a count that each split has, over the relations."""
        return {
            split: sum(getattr(relation, count)[split] for relation in self.relations)
            for split in ("train", "dev", "test")
        }

    @property
    def test(self) -> int:
        """Lines of test."""
        return self.by_split("facts")["test"]

    def micro(self, count: str) -> float:
        """A count in per cent of all lines of test."""
        return 100 * self.total(count) / self.test

    def macro(self, count: str) -> float:
        """The mean over the relations of a count in per cent of the relation's lines of test."""
        shares = [getattr(relation, count) / relation.facts["test"] for relation in self.relations]
        return 100 * sum(shares) / len(shares)

    def as_json(self) -> dict[str, Any]:
        """The audit of the whole, and under "relations" the same for each; shares are in per cent of test's lines."""
        return {
            **self._figures(),
            "relations": {relation.name: SetAudit(self.name, (relation,))._figures() for relation in self.relations},
        }

    def _figures(self) -> dict[str, Any]:
        return {
            "facts": self.by_split("facts"),
            "distinct": self.total("distinct"),
            "leaked_pairs": self.total("leaked_pairs"),
            "unseen_y": self.micro("unseen_y"),
            "y_in_x": self.micro("y_in_x"),
            "several_golds": self.micro("several_golds"),
            "majority": {"micro": self.micro("majority"), "macro": self.macro("majority")},
            "copy_train_y": self.micro("copy_train_y"),
            "details": {
                "duplicates": self.by_split("duplicates"),
                "leaked_x": self.micro("leaked_x"),
                "test_in_dev": self.total("in_dev"),
                "dev_in_train": self.total("dev_in_train"),
                "several_golds_all_splits": self.micro("several_golds_all"),
                "copy_x": self.micro("copy_x"),
                "distinct_ys": self.by_split("ys"),
                "largest_y": {"micro": self.micro("largest"), "macro": self.macro("largest")},
                "effective_ys": sum(relation.effective_ys for relation in self.relations) / len(self.relations),
            },
        }


def audit_set(facts: FactSet) -> SetAudit:
    """The audit of a set of relations, or of one."""
    return SetAudit(facts.name, tuple(map(audit_relation, facts.relations)))


def _golds(facts: frozenset[Fact]) -> Counter[str]:
    """How many right ys each x has among some distinct facts."""
    return Counter(fact.x for fact in facts)


def majority_y(train: Sequence[Fact]) -> str:
    """Train's most common y, repeated lines counted; of several the one that comes first in the file."""
    return Counter(fact.y for fact in train).most_common(1)[0][0]


class CopyFromTrain:
    """Answers with train's most common y for the same x; of several the one that comes first in the file."""

    def __init__(self, train: Sequence[Fact]) -> None:
        ys: dict[str, Counter[str]] = {}
        for fact in train:
            ys.setdefault(fact.x, Counter())[fact.y] += 1
        self._y_of = {x: counted.most_common(1)[0][0] for x, counted in ys.items()}

    def answer(self, x: str) -> str | None:
        """The answer, None for an x that train does not have."""
        return self._y_of.get(x)


class CopyFromX:
    """Answers with the longest of train's ys that stands inside x, whatever the case of its letters.

    Of several of one length it is the most common in train, then the one that comes first in the file.
    """

    def __init__(self, train: Sequence[Fact]) -> None:
        self._y_of: dict[str, str] = {}
        self._order: dict[str, int] = {}  # by how common it is
        for place, (y, _) in enumerate(Counter(fact.y for fact in train).most_common()):
            self._y_of.setdefault(y.casefold(), y)
            self._order.setdefault(y.casefold(), place)
        self._longest = max(map(len, self._y_of))

    def answer(self, x: str) -> str | None:
        """The answer, None if no y of train stands inside x."""
        text = x.casefold()
        for length in range(min(len(text), self._longest), 0, -1):
            pieces = {text[begin : begin + length] for begin in range(len(text) - length + 1)}
            if found := pieces & self._y_of.keys():
                return self._y_of[min(found, key=self._order.__getitem__)]
        return None


def stands_in(y: str, x: str) -> bool:
    """Whether y is a part of x, whatever the case of its letters (LAMA-UHN leaves such facts out)."""
    return y.casefold() in x.casefold()


def audit_sentences(audit: SetAudit) -> list[str]:
    """What a reader of a score on these facts should know, one sentence each; what is not the case is left out."""
    facts, test = audit.by_split("facts"), audit.test
    told = [
        f"{facts['train']:,} train, {facts['dev']:,} dev and {test:,} test facts, "
        f"{audit.total('distinct'):,} of them distinct."
    ]
    repeated = {split: count for split, count in audit.by_split("duplicates").items() if count}
    if repeated:
        counts = ", ".join(f"{count:,} of {split}" for split, count in repeated.items())
        told.append(f"Lines that repeat a fact of their own split: {counts}.")
    if leaked := audit.total("leaked_pairs"):
        told.append(
            f"{leaked:,} of {test:,} test facts ({100 * leaked / test:.1f} %) stand in train too: "
            "a score on them can be memory."
        )
    else:
        told.append("No test fact stands in train.")
    if audit.total("leaked_x"):
        told.append(
            f"{audit.micro('leaked_x'):.1f} % of test facts have an x that train has too; answering with train's y "
            f"for the same x scores {audit.micro('copy_train_y'):.1f} %."
        )
    if in_dev := audit.total("in_dev"):
        told.append(f"{_counted(in_dev, 'test fact stands', 'test facts stand')} in dev too.")
    if dev_in_train := audit.total("dev_in_train"):
        stand = _counted(dev_in_train, "dev fact stands", "dev facts stand")
        told.append(f"{stand} in train too, so dev flatters what was learned by heart.")
    told.append(
        f"Always answering train's most common y scores {audit.micro('majority'):.1f} % (mean over facts) or "
        f"{audit.macro('majority'):.1f} % (mean over relations)."
    )
    if audit.total("y_in_x"):
        told.append(
            f"In {audit.micro('y_in_x'):.1f} % of test facts y stands inside x; answering with a y of train that "
            f"stands inside x scores {audit.micro('copy_x'):.1f} %."
        )
    if audit.total("unseen_y"):
        told.append(
            f"{audit.micro('unseen_y'):.1f} % of test facts have a y that train never shows: they cannot be owed to "
            "a preference for train's ys."
        )
    if audit.total("several_golds"):
        told.append(
            f"{audit.micro('several_golds'):.1f} % of test facts have an x with several right ys in test "
            f"({audit.micro('several_golds_all'):.1f} % when train and dev are counted too)."
        )
    return told


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
