"""The published sets that askwell can pull: what they are, where they come from, the hash of every file, and whether
the files in a folder are intact."""

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from askwell.errors import BadFile, BadOption, DamagedFile, did_you_mean, first_few

CountedIn = Literal["facts", "prompts", "relations", "words"]


@dataclass(frozen=True)
class Origin:
    """A file or folder in a public repository, at one commit."""

    repository: str
    """owner/name on GitHub."""
    commit: str
    path: str


@dataclass(frozen=True)
class DataFile:
    """A file of the data folder, as it was published."""

    path: str
    """From the data folder, with slashes."""
    origin: Origin
    """Where the same bytes are published."""
    bytes: int
    lines: int
    """Lines that are not blank: facts, prompts, relations or words."""
    sha256: str


@dataclass(frozen=True)
class DataSet:
    """A folder of the data folder that is pulled and verified as one."""

    name: str
    """Its folder, e.g. facts/trex_original."""
    about: str
    licence: str
    """The licence of the repository that publishes it."""
    unit: CountedIn
    """What a line of its files is."""
    origin: Origin
    """The folder it comes from."""
    elsewhere: Mapping[str, Origin] = field(default_factory=dict)
    """Files that have another name or commit there, by their name here."""

    @cached_property
    def files(self) -> tuple[DataFile, ...]:
        """Return every file of the set, with size and hash."""
        prefix = f"{self.name}/"
        return tuple(
            DataFile(path, self._origin_of(path.removeprefix(prefix)), **about)
            for path, about in _manifest().items()
            if path.startswith(prefix)
        )

    @property
    def relations(self) -> int | None:
        """Return how many relations the set has, each in its own file or folder; None if it is laid out differently."""
        if self.unit not in ("facts", "prompts") or self.elsewhere:
            return None
        inner = (file.path.removeprefix(f"{self.name}/") for file in self.files)
        return len({name.split("/")[0] for name in inner})

    @property
    def lines(self) -> int:
        """Return how many facts, prompts, relations or words it contains."""
        return sum(file.lines for file in self.files)

    @property
    def bytes(self) -> int:
        """Return its size on disk."""
        return sum(file.bytes for file in self.files)

    @property
    def names(self) -> set[str]:
        """Return what it can be called: facts/conceptnet, facts (with the other sets of facts), or conceptnet."""
        return {self.name, *self.name.split("/")}

    def _origin_of(self, name: str) -> Origin:
        return self.elsewhere.get(name) or replace(self.origin, path=f"{self.origin.path}/{name}")


@cache
def _manifest() -> Mapping[str, Mapping[str, Any]]:
    return json.loads(files("askwell.data").joinpath("manifest.json").read_text(encoding="utf-8"))


def _sets() -> tuple[DataSet, ...]:
    table = tomllib.loads(files("askwell.data").joinpath("sets.toml").read_text(encoding="utf-8"))
    return TypeAdapter(tuple[DataSet, ...]).validate_python(table["sets"])


SETS = _sets()


def chosen_sets(names: Iterable[str]) -> tuple[DataSet, ...]:
    """Return the sets of these names, all if none is given; conceptnet means both facts/conceptnet and
    prompts/conceptnet."""
    wanted = {name.strip("/") for name in names}
    known = {name for data_set in SETS for name in data_set.names}
    if unknown := sorted(wanted - known):
        raise BadOption(f"there is no data set {unknown[0]!r}{did_you_mean(unknown[0], sorted(known))}")
    return tuple(data_set for data_set in SETS if not wanted or data_set.names & wanted)


@dataclass(frozen=True)
class Condition:
    """Which files of a set a folder has."""

    data_set: DataSet
    right: tuple[DataFile, ...]
    missing: tuple[DataFile, ...]
    altered: tuple[DataFile, ...]

    @property
    def wanted(self) -> tuple[DataFile, ...]:
        """Return the files that have to be fetched."""
        return (*self.missing, *self.altered)

    @property
    def is_whole(self) -> bool:
        """Return whether every file is there and intact."""
        return not self.wanted

    @property
    def is_absent(self) -> bool:
        """Return whether no file is there at all."""
        return len(self.missing) == len(self.data_set.files)

    @property
    def summary(self) -> str:
        """Return a short phrase for people."""
        if self.is_whole:
            return "here"
        if self.is_absent:
            return "missing"
        parts = [f"{len(self.missing)} of {len(self.data_set.files)} files missing"] if self.missing else []
        parts += [f"{len(self.altered)} altered"] if self.altered else []
        return ", ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """Return what the set is, and which of its files are here."""
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
        """Return the folder, and the condition of each set."""
        return {"folder": str(self.folder), "sets": [found.as_json() for found in self.conditions]}

    def need_right(self, *, all_here: bool) -> None:
        """Raise if a file is missing or altered in a set that is there; with `all_here`, also if a set is missing."""
        wrong = [found for found in self.conditions if not found.is_whole and (all_here or not found.is_absent)]
        if wrong:
            files = [file.path for found in wrong for file in found.wanted]
            named = first_few(files, 5)
            raise DamagedFile(
                f"{len(files)} {'file' if len(files) == 1 else 'files'} in {self.folder} missing or not as published:"
                f" {named}. Pull them again with: askwell data pull {' '.join(found.data_set.name for found in wrong)}"
            )


def take_inventory(folder: Path, sets: Sequence[DataSet]) -> Inventory:
    """Return which files of the sets `folder` has."""
    return Inventory(folder, tuple(condition(data_set, folder) for data_set in sets))


def condition(data_set: DataSet, folder: Path) -> Condition:
    """Return which files of the set `folder` has, and which of them have the right hash."""
    right, missing, altered = [], [], []
    for file in data_set.files:
        path = folder / file.path
        if not path.is_file():
            missing.append(file)
        else:
            (right if is_right(path, file) else altered).append(file)
    return Condition(data_set, tuple(right), tuple(missing), tuple(altered))


def is_right(path: Path, file: DataFile) -> bool:
    """Return whether a file on disk has the size and hash that it should."""
    return path.stat().st_size == file.bytes and sha256_of(path) == file.sha256


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    try:
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise BadFile(path, f"the file cannot be read: {error.strerror}") from error
