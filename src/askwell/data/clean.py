"""A split without leaks, made from one that has them."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from askwell.data.audit import audit_splits
from askwell.data.facts import Fact
from askwell.data.read_facts import Splits
from askwell.errors import BadOption, CannotWrite, NothingLeft
from askwell.files import need_writable_folder


@dataclass(frozen=True)
class CleanSplit:
    """A relation's splits without leaks, and how many lines of each split are gone."""

    splits: Splits
    leaks: dict[str, int]
    """Lines of train and dev whose fact stands in a split that is asked later."""
    repeated: dict[str, int]
    """Lines that repeated a fact of their own split."""


def clean_splits(splits: Splits) -> CleanSplit:
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
    return CleanSplit(Splits(splits.name, train, dev, test), leaks, repeated)


def write_clean(name: str, cleaned: Sequence[CleanSplit], folder: Path, *, is_set: bool) -> dict[str, Any]:
    """Writes clean splits and audit.json into a new folder, and returns what audit.json says.

    A set gets a folder for each relation, a single relation lies in the folder itself; both can be named with --facts.
    """
    need_new_folder(folder)
    document = {
        "made_from": name,
        "leaks_removed": _sums([clean.leaks for clean in cleaned]),
        "repeated_removed": _sums([clean.repeated for clean in cleaned]),
        "audit": audit_splits(name, [clean.splits for clean in cleaned]).as_json(),
    }
    # Made aside and renamed when whole, so that no half of a data set is ever taken for a whole one.
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as aside:
            whole = Path(aside) / "whole"
            for clean in cleaned:
                _write_splits(clean.splits, whole / clean.splits.name if is_set else whole)
            (whole / "audit.json").write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n", "utf-8")
            if folder.exists():
                folder.rmdir()
            whole.rename(folder)
    except OSError as error:
        raise CannotWrite(f"{folder} cannot be written: {error.strerror or error}") from error
    return document


def need_new_folder(folder: Path) -> None:
    """Raises if the folder cannot be written, or holds something already."""
    need_writable_folder(folder, "--out")
    if folder.exists() and any(folder.iterdir()):
        raise BadOption(f"--out {folder} is not empty; name a new folder")


def _without(facts: dict[Fact, None], others: set[Fact]) -> tuple[Fact, ...]:
    return tuple(fact for fact in facts if fact not in others)


def _write_splits(splits: Splits, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in ("train", "dev", "test"):
        lines = [json.dumps({"sub": fact.x, "obj": fact.y}, ensure_ascii=False) for fact in getattr(splits, name)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


def _sums(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    return {split: sum(count[split] for count in counts) for split in ("train", "dev", "test")}
