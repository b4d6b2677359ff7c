"""A split without leaks, made from one that has them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from askwell.data.audit import SetAudit, audit_set
from askwell.data.facts import Fact, facts_jsonl
from askwell.data.names import FactSet
from askwell.data.read_facts import SplitLines
from askwell.errors import BadOption, NothingLeft
from askwell.files import need_writable_folder, write_folder


@dataclass(frozen=True)
class CleanSplit:
    """A relation's splits without leaks, and how many lines of each split are gone."""

    splits: SplitLines
    leaks: dict[str, int]
    """Lines of train and dev whose fact stands in a later split."""
    repeated: dict[str, int]
    """Lines that repeated a fact of their own split."""


def clean_splits(splits: SplitLines) -> CleanSplit:
    """The splits with every fact in one of them, once: train loses what stands in dev or test, dev what stands in test.

    Test keeps all its facts. If it lost those that leak, what is left would be the rare facts, and scores on it would
    not be comparable with others. Lines keep their order.
    """
    test = tuple(dict.fromkeys(splits.test))
    dev = _without(dict.fromkeys(splits.dev), {*test})
    train = _without(dict.fromkeys(splits.train), {*dev, *test})
    for name, kept in (("train", train), ("dev", dev)):
        if not kept:
            lines = len(getattr(splits, name))
            raise NothingLeft(f"{name} facts of {splits.name}", {"the fact stands in a later split": lines})
    leaks = {"train": len({*splits.train}) - len(train), "dev": len({*splits.dev}) - len(dev), "test": 0}
    repeated = {name: len(getattr(splits, name)) - len({*getattr(splits, name)}) for name in ("train", "dev", "test")}
    return CleanSplit(SplitLines(splits.name, train, dev, test), leaks, repeated)


@dataclass(frozen=True)
class CleanReport:
    """What was left out of the splits of a set, and the audit of what is left."""

    made_from: str
    leaks_removed: dict[str, int]
    """Facts of each split."""
    repeated_removed: dict[str, int]
    """Lines of each split."""
    audit: SetAudit

    def as_json(self) -> dict[str, Any]:
        """What audit.json says."""
        return {
            "made_from": self.made_from,
            "leaks_removed": self.leaks_removed,
            "repeated_removed": self.repeated_removed,
            "audit": self.audit.as_json(),
        }


def write_clean(facts: FactSet, folder: Path) -> CleanReport:
    """Writes clean splits and audit.json into a new folder.

    A set gets a folder for each relation, a single relation lies in the folder itself; both can be named with --facts.
    """
    need_new_folder(folder)
    cleaned = [clean_splits(relation) for relation in facts.relations]
    report = CleanReport(
        made_from=facts.name,
        leaks_removed=_sums([clean.leaks for clean in cleaned]),
        repeated_removed=_sums([clean.repeated for clean in cleaned]),
        audit=audit_set(replace(facts, relations=tuple(clean.splits for clean in cleaned))),
    )
    files = {"audit.json": json.dumps(report.as_json(), ensure_ascii=False, indent=2) + "\n"}
    for clean in cleaned:
        inside = "" if facts.is_single else f"{clean.splits.name}/"
        for split in ("train", "dev", "test"):
            files[f"{inside}{split}.jsonl"] = facts_jsonl(getattr(clean.splits, split))
    write_folder(folder, files)
    return report


def need_new_folder(folder: Path) -> None:
    """Raises if the folder cannot be written, or holds something already."""
    need_writable_folder(folder, "--out")
    if folder.exists() and any(folder.iterdir()):
        raise BadOption(f"--out {folder} is not empty; name a new folder")


def _without(facts: dict[Fact, None], others: set[Fact]) -> tuple[Fact, ...]:
    return tuple(fact for fact in facts if fact not in others)


def _sums(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    return {split: sum(count[split] for count in counts) for split in ("train", "dev", "test")}
