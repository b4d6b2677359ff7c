"""The splits of a relation, or of a whole set of relations, as they stand in their files."""

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from askwell.data_folder import data_folder, find
from askwell.facts import Fact, Relation, SplitName, SplitRule, read_relation
from askwell.facts.parse import parse_facts


@dataclass(frozen=True)
class Splits:
    """The facts of a relation in the order of their lines, repeated ones kept."""

    name: str
    train: tuple[Fact, ...]
    dev: tuple[Fact, ...]
    test: tuple[Fact, ...]

    @classmethod
    def of(cls, relation: Relation) -> "Splits":
        """The splits of a relation, in its canonical order."""
        return cls(relation.name, relation.train, relation.dev, relation.test)


def read_splits(
    source: str, *, data: Path | None = None, split: SplitRule | str | None = None, seed: int = 0
) -> list[Splits]:
    """The relations of a set (trex_original), sorted by name, or the one relation that `source` names.

    A single file is split as `askwell train` would split it. Relations of a set have their short names (P19).
    """
    path = find(source, "facts", data_folder(data))
    files = [f"{name}.jsonl" for name in get_args(SplitName)]
    if path.is_dir() and split is None:
        if any((path / file).exists() for file in files):
            return [_read_folder(path, files)]
        folders = sorted({file.parent for name in files for file in path.glob(f"*/{name}")})
        if folders:
            return [_read_folder(folder, files) for folder in folders]
    return [Splits.of(read_relation(source, data=data, split=split, seed=seed))]


def _read_folder(folder: Path, files: list[str]) -> Splits:
    # Not read_relation: it sorts, and which y comes first in train's file decides ties.
    train, dev, test = (tuple(parse_facts(folder / file)) for file in files)
    return Splits(folder.name or folder.resolve().name, train, dev, test)
