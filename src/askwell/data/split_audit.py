"""Audits splits (repeated and leaked facts, class balance, the scores of answers that need no LM), and mends those that
leak."""

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from askwell.data.facts import SPLITS, Fact, SplitLines, facts_jsonl
from askwell.data.names import FactSet
from askwell.errors import BadOption, NothingLeft
from askwell.files import need_writable_folder, write_folder


@dataclass(frozen=True)
class RelationAudit:
    """The audit of one relation. Unless stated otherwise, a number counts lines of test, including repeated ones."""

    name: str
    facts: dict[str, int]
    """Lines of each split."""
    duplicates: dict[str, int]
    """Lines of each split that repeat an earlier one."""
    distinct: int
    """Distinct facts over all splits."""
    leaked_pairs: int
    """The fact is also in train."""
    leaked_x: int
    """The x is also in train, with this y or another."""
    in_dev: int
    """The fact is also in dev."""
    dev_in_train: int
    """Lines of dev whose fact is also in train."""
    unseen_y: int
    """No fact of train has this y."""
    y_in_x: int
    """y is part of x, regardless of case."""
    several_golds: int
    """x has several right ys among the facts of test."""
    several_golds_all: int
    """x has several right ys among the facts of all splits."""
    majority: int
    """y is train's most common y."""
    copy_train_y: int
    """y is train's most common y for the same x."""
    copy_x: int
    """y is the longest of train's ys that is part of x."""
    ys: dict[str, int]
    """Distinct ys of each split."""
    largest: int
    """y is test's most common y."""
    effective_ys: float
    """2^H, where H is the entropy in bits of the ys of test: as many equally frequent ys would be as hard to guess."""


def audit_relation(splits: SplitLines) -> RelationAudit:
    """Return the audit of one relation."""
    lines = splits.splits
    facts = {name: frozenset(split) for name, split in lines.items()}
    ys = {name: {fact.y for fact in split} for name, split in lines.items()}
    xs_of_train = {fact.x for fact in splits.train}
    distinct = frozenset().union(*facts.values())
    golds_of_test, all_golds = Counter(fact.x for fact in facts["test"]), Counter(fact.x for fact in distinct)
    common, from_train, from_x = majority_y(splits.train), copy_from_train(splits.train), copy_from_x(splits.train)
    classes = Counter(fact.y for fact in splits.test)
    return RelationAudit(
        name=splits.name,
        facts={name: len(split) for name, split in lines.items()},
        duplicates={name: len(lines[name]) - len(facts[name]) for name in lines},
        distinct=len(distinct),
        leaked_pairs=sum(fact in facts["train"] for fact in splits.test),
        leaked_x=sum(fact.x in xs_of_train for fact in splits.test),
        in_dev=sum(fact in facts["dev"] for fact in splits.test),
        dev_in_train=sum(fact in facts["train"] for fact in splits.dev),
        unseen_y=sum(fact.y not in ys["train"] for fact in splits.test),
        y_in_x=sum(is_inside(fact.y, fact.x) for fact in splits.test),
        several_golds=sum(golds_of_test[fact.x] > 1 for fact in splits.test),
        several_golds_all=sum(all_golds[fact.x] > 1 for fact in splits.test),
        majority=sum(fact.y == common for fact in splits.test),
        copy_train_y=sum(fact.y == from_train.get(fact.x) for fact in splits.test),
        copy_x=sum(fact.y == from_x(fact.x) for fact in splits.test),
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
        """Return the sum of a count over the relations."""
        return sum(getattr(relation, count) for relation in self.relations)

    def by_split(self, count: str) -> dict[str, int]:
        """Return the sum over the relations of a count that each split has."""
        return {split: sum(getattr(relation, count)[split] for relation in self.relations) for split in SPLITS}

    @property
    def test(self) -> int:
        """Return lines of test."""
        return self.by_split("facts")["test"]

    def micro(self, count: str) -> float:
        """Return a count in per cent of all lines of test."""
        return 100 * self.total(count) / self.test

    def macro(self, count: str) -> float:
        """Return the mean over relations of a count in per cent of the relation's lines of test."""
        fractions = [getattr(relation, count) / relation.facts["test"] for relation in self.relations]
        return 100 * sum(fractions) / len(fractions)

    def as_json(self) -> dict[str, Any]:
        """Return the audit of the whole, and under "relations" the same for each; fractions are in per cent of test's
        lines."""
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


def audit_set(relations: FactSet) -> SetAudit:
    """Return the audit of a set of relations, or of one."""
    return SetAudit(relations.name, tuple(map(audit_relation, relations.relations)))


def majority_y(train: Sequence[Fact]) -> str:
    """Return train's most common y, counting repeated lines; among several, the first in the file."""
    return Counter(fact.y for fact in train).most_common(1)[0][0]


def copy_from_train(train: Sequence[Fact]) -> dict[str, str]:
    """Return train's most common y for each x; among several, the first in the file."""
    counts, best = Counter(train), dict[str, Fact]()
    for fact, count in counts.items():
        if fact.x not in best or count > counts[best[fact.x]]:
            best[fact.x] = fact
    return {x: fact.y for x, fact in best.items()}


def copy_from_x(train: Sequence[Fact]) -> Callable[[str], str | None]:
    """Answer with the longest of train's ys that is part of x, regardless of case; None if there is none.

    Among several of one length it is the most common in train, then the first in the file.
    """
    order = {y: place for place, (y, _) in enumerate(Counter(fact.y for fact in train).most_common())}
    y_of = {y.casefold(): y for y in reversed(order)}
    longest_first = sorted({len(y) for y in y_of}, reverse=True)

    def answer(x: str) -> str | None:
        text = x.casefold()
        for length in longest_first:  # each piece of x is looked up, since there may be a million ys
            pieces = {text[begin : begin + length] for begin in range(len(text) - length + 1)}
            if found := pieces & y_of.keys():
                return min((y_of[piece] for piece in found), key=order.__getitem__)
        return None

    return answer


def is_inside(y: str, x: str) -> bool:
    """Return whether y is part of x, regardless of case (LAMA-UHN leaves such facts out)."""
    return y.casefold() in x.casefold()


def audit_sentences(audit: SetAudit) -> list[str]:
    """Return what to know before reading a score on these facts, one sentence each; only what applies is mentioned."""
    facts, test, total, micro = audit.by_split("facts"), audit.test, audit.total, audit.micro
    told = [
        f"{facts['train']:,} in train, {facts['dev']:,} in dev and {test:,} in test: {total('distinct'):,} different "
        "facts."
    ]
    repeated = [f"{count:,} of {split}" for split, count in audit.by_split("duplicates").items() if count]
    if repeated:
        told.append(f"Lines that repeat a fact of the same split: {', '.join(repeated)}.")
    leaked, share = total("leaked_pairs"), micro("leaked_pairs")
    memory = f"{leaked:,} of {test:,} test facts ({share:.1f} %) are also in train: they may have been memorised."
    told.append(memory if leaked else "No test fact is in train.")
    told.append(
        f"Always answering train's most common y scores {micro('majority'):.1f} % (mean over facts) or "
        f"{audit.macro('majority'):.1f} % (mean over relations)."
    )
    others = {
        "leaked_x": f"{micro('leaked_x'):.1f} % of test facts have an x that is also in train; answering with train's "
        f"y for the same x scores {micro('copy_train_y'):.1f} %.",
        "in_dev": f"Test facts that are also in dev: {total('in_dev'):,}.",
        "dev_in_train": f"Dev facts that are also in train: {total('dev_in_train'):,}; dev scores overrate what was "
        "memorised.",
        "y_in_x": f"In {micro('y_in_x'):.1f} % of test facts y is part of x; answering with a y of train that is part "
        f"of x scores {micro('copy_x'):.1f} %.",
        "unseen_y": f"{micro('unseen_y'):.1f} % of test facts have a y that never occurs in train: a preference for "
        "train's y's cannot explain a right answer there.",
        "several_golds": f"{micro('several_golds'):.1f} % of test facts have an x with several right y's in test "
        f"({micro('several_golds_all'):.1f} % when train and dev are counted too).",
    }
    return told + [sentence for count, sentence in others.items() if total(count)]


def clean_splits(splits: SplitLines) -> SplitLines:
    """Return the splits with every fact once, in one of them: facts of dev and test are removed from train, facts of
    test from dev.

    Test keeps all its facts: without the leaked ones it would consist of rare facts, and scores on it would not be
    comparable with others. Lines keep their order.
    """
    test = tuple(dict.fromkeys(splits.test))
    dev = _without(dict.fromkeys(splits.dev), {*test})
    train = _without(dict.fromkeys(splits.train), {*dev, *test})
    clean = SplitLines(splits.name, train, dev, test)
    for name, kept in clean.splits.items():
        if not kept:
            reasons = {"the fact is also in a later split": len(splits.splits[name])}
            raise NothingLeft(f"{name} facts of {splits.name}", reasons)
    return clean


def _without(left: dict[Fact, None], others: set[Fact]) -> tuple[Fact, ...]:
    return tuple(fact for fact in left if fact not in others)


def write_clean(relations: FactSet, folder: Path) -> dict[str, Any]:
    """Write clean splits into a new folder, and audit.json, which it also returns: the set they were made from, how
    many leaked facts and repeated lines of each split were removed, and the audit of what is left.

    A set gets a folder for each relation, a single relation is written into the folder itself; --facts takes both.
    """
    need_new_folder(folder)
    clean = replace(relations, relations=tuple(map(clean_splits, relations.relations)))
    before, after = audit_set(relations), audit_set(clean)
    lines, left, repeated = before.by_split("facts"), after.by_split("facts"), before.by_split("duplicates")
    report = {
        "made_from": relations.name,
        "leaks_removed": {split: lines[split] - repeated[split] - left[split] for split in SPLITS},
        "repeated_removed": repeated,
        "audit": after.as_json(),
    }
    files = {"audit.json": json.dumps(report, ensure_ascii=False, indent=2) + "\n"}
    for relation in clean.relations:
        inside = "" if relations.is_single else f"{relation.name}/"
        for split, of_split in relation.splits.items():
            files[f"{inside}{split}.jsonl"] = facts_jsonl(of_split)
    write_folder(folder, files)
    return report


def need_new_folder(folder: Path) -> None:
    """Raise if the folder cannot be written to, or is not empty."""
    need_writable_folder(folder, "--out")
    if folder.exists() and any(folder.iterdir()):
        raise BadOption(f"`folder` {folder} is not empty; name a new folder", folder="--out")
