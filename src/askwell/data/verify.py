"""Whether the files of a published set lie in a folder as they were published."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from askwell.data.catalogue import DataFile, DataSet
from askwell.errors import BadFile


@dataclass(frozen=True)
class Condition:
    """What a folder has of a set."""

    data_set: DataSet
    right: tuple[DataFile, ...]
    missing: tuple[DataFile, ...]
    altered: tuple[DataFile, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every file is there, and right."""
        return not self.missing and not self.altered

    @property
    def is_absent(self) -> bool:
        """Whether no file is there at all."""
        return len(self.missing) == len(self.data_set.files)

    @property
    def summary(self) -> str:
        """One short phrase for people."""
        if self.is_whole:
            return "here"
        if self.is_absent:
            return "missing"
        parts = [f"{len(self.missing)} of {len(self.data_set.files)} files missing"] if self.missing else []
        parts += [f"{len(self.altered)} altered"] if self.altered else []
        return ", ".join(parts)


def condition(data_set: DataSet, folder: Path) -> Condition:
    """What `folder` has of the set, by the hashes of its files."""
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
