"""Which published sets a folder contains, and whether their files are intact."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from askwell.data.catalogue import DataFile, DataSet
from askwell.errors import BadFile, DamagedFile


@dataclass(frozen=True)
class Condition:
    """Which files of a set a folder has."""

    data_set: DataSet
    right: tuple[DataFile, ...]
    missing: tuple[DataFile, ...]
    altered: tuple[DataFile, ...]

    @property
    def wanted(self) -> tuple[DataFile, ...]:
        """The files that have to be fetched."""
        return (*self.missing, *self.altered)

    @property
    def is_whole(self) -> bool:
        """Whether every file is there and intact."""
        return not self.wanted

    @property
    def is_absent(self) -> bool:
        """Whether no file is there at all."""
        return len(self.missing) == len(self.data_set.files)

    @property
    def summary(self) -> str:
        """A short phrase for people."""
        if self.is_whole:
            return "here"
        if self.is_absent:
            return "missing"
        parts = [f"{len(self.missing)} of {len(self.data_set.files)} files missing"] if self.missing else []
        parts += [f"{len(self.altered)} altered"] if self.altered else []
        return ", ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """What the set is, and which of its files are here."""
        data_set = self.data_set
        return {
            "name": data_set.name,
            "about": data_set.about,
            "from": f"{data_set.origin.repository}@{data_set.origin.commit}",
            "licence": data_set.licence,
            "relations": data_set.relations,
            data_set.unit if data_set.unit != "relations" else "lines": data_set.lines,
            "bytes": data_set.bytes,
            "files": len(data_set.files),
            "right": len(self.right),
            "missing": [file.path for file in self.missing],
            "altered": [file.path for file in self.altered],
            "state": self.summary,
        }


@dataclass(frozen=True)
class Inventory:
    """Which files of several sets a folder has."""

    folder: Path
    conditions: tuple[Condition, ...]

    def as_json(self) -> dict[str, Any]:
        """The folder, and the condition of each set."""
        return {"folder": str(self.folder), "sets": [found.as_json() for found in self.conditions]}

    def need_right(self, *, all_here: bool) -> None:
        """Raises if a file is missing or altered in a set that is there; with `all_here`, also if a set is missing."""
        wrong = [found for found in self.conditions if not found.is_whole and (all_here or not found.is_absent)]
        if wrong:
            files = [file.path for found in wrong for file in found.wanted]
            named = ", ".join(files[:5]) + (", …" if len(files) > 5 else "")
            raise DamagedFile(
                f"{len(files)} {'file' if len(files) == 1 else 'files'} in {self.folder} missing or not as published:"
                f" {named}. Pull them again with: askwell data pull {' '.join(found.data_set.name for found in wrong)}"
            )


def take_inventory(folder: Path, sets: Sequence[DataSet]) -> Inventory:
    """Which files of the sets `folder` has."""
    return Inventory(folder, tuple(condition(data_set, folder) for data_set in sets))


def condition(data_set: DataSet, folder: Path) -> Condition:
    """Which files of the set `folder` has, and which of them have the right hash."""
    right, missing, altered = [], [], []
    for file in data_set.files:
        path = folder / file.path
        if not path.is_file():
            missing.append(file)
        else:
            (right if is_right(path, file) else altered).append(file)
    return Condition(data_set, tuple(right), tuple(missing), tuple(altered))


def is_right(path: Path, file: DataFile) -> bool:
    """Whether a file on disk has the size and hash that it should."""
    return path.stat().st_size == file.bytes and sha256_of(path) == file.sha256


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    try:
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise BadFile(path, f"the file cannot be read: {error.strerror}") from error
