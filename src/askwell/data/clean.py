"""A split without leaks, made from one that has them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from askwell.data.audit import SetAudit, audit_set
from askwell.data.facts import SPLITS, Fact, SplitLines, facts_jsonl
from askwell.data.names import FactSet
from askwell.errors import BadOption, NothingLeft
from askwell.files import need_writable_folder, write_folder


@dataclass(frozen=True)
class CleanSplit:
    """A relation's splits without leaks, and how many lines of each split were removed."""

    splits: SplitLines
    leaks: dict[str, int]
    """Distinct facts that are also in a later split."""
    repeated: dict[str, int]
    """Lines that repeated a fact of the same split."""


def clean_splits(splits: SplitLines) -> CleanSplit:
    """The splits with every fact once, in one of them: facts of dev and test are removed from train, facts of test
    from dev.

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
    distinct = {name: len({*facts}) for name, facts in splits.splits.items()}
    leaks = {name: distinct[name] - len(kept) for name, kept in clean.splits.items()}
    repeated = {name: len(facts) - distinct[name] for name, facts in splits.splits.items()}
    return CleanSplit(clean, leaks, repeated)


@dataclass(frozen=True)
class CleanReport:
    """What was left out of the splits of a set, and the audit of what is left."""

    made_from: str
    leaks_removed: dict[str, int]
    """Facts of each split."""
    repeated_removed: dict[str, int]
    """Lines of each split."""
    audit: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """What audit.json says."""
        return asdict(self)


def write_clean(facts: FactSet, folder: Path) -> CleanReport:
    """Writes clean splits and audit.json into a new folder.

    A set gets a folder for each relation, a single relation is written into the folder itself; --facts takes both.
    """
    need_new_folder(folder)
    cleaned = [clean_splits(relation) for relation in facts.relations]
    report = CleanReport(
        made_from=facts.name,
        leaks_removed=_sums([clean.leaks for clean in cleaned]),
        repeated_removed=_sums([clean.repeated for clean in cleaned]),
        audit=audit_set(replace(facts, relations=tuple(clean.splits for clean in cleaned))).as_json(),
    )
    files = {"audit.json": json.dumps(report.as_json(), ensure_ascii=False, indent=2) + "\n"}
    for clean in cleaned:
        inside = "" if facts.is_single else f"{clean.splits.name}/"
        for split, lines in clean.splits.splits.items():
            files[f"{inside}{split}.jsonl"] = facts_jsonl(lines)
    write_folder(folder, files)
    return report


@dataclass(frozen=True)
class Audited:
    """The audit of a set, and what its clean split leaves out, if one was written."""

    audit: SetAudit
    clean: CleanReport | None

    def as_json(self) -> dict[str, Any]:
        """What `askwell audit --json` prints."""
        return self.audit.as_json() | ({} if self.clean is None else {"clean": self.clean.as_json()})


def audit_and_clean(facts: FactSet, out: Path | None = None) -> Audited:
    """Audits the splits of a set and, if a new folder is named, writes a split without leaks there."""
    return Audited(audit_set(facts), None if out is None else write_clean(facts, out))


def need_new_folder(folder: Path) -> None:
    """Raises if the folder cannot be written to, or is not empty."""
    need_writable_folder(folder, "--out")
    if folder.exists() and any(folder.iterdir()):
        raise BadOption(f"--out {folder} is not empty; name a new folder")


def _without(facts: dict[Fact, None], others: set[Fact]) -> tuple[Fact, ...]:
    return tuple(fact for fact in facts if fact not in others)


def _sums(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    return {split: sum(count[split] for count in counts) for split in SPLITS}
