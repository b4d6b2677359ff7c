"""The published sets that askwell can pull: what they are, where they come from, and the hash of every file."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Literal

from pydantic import TypeAdapter

from askwell.errors import BadOption, did_you_mean

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
        """Every file of the set, with size and hash."""
        prefix = f"{self.name}/"
        return tuple(
            DataFile(path, self._origin_of(path.removeprefix(prefix)), **about)
            for path, about in _manifest().items()
            if path.startswith(prefix)
        )

    @property
    def relations(self) -> int | None:
        """How many relations the set has, each in its own file or folder; None if it is laid out differently."""
        if self.unit not in ("facts", "prompts") or self.elsewhere:
            return None
        inner = (file.path.removeprefix(f"{self.name}/") for file in self.files)
        return len({name.split("/")[0] for name in inner})

    @property
    def lines(self) -> int:
        """How many facts, prompts, relations or words it contains."""
        return sum(file.lines for file in self.files)

    @property
    def bytes(self) -> int:
        """Its size on disk."""
        return sum(file.bytes for file in self.files)

    @property
    def names(self) -> set[str]:
        """What it can be called: facts/conceptnet, facts (with the other sets of facts), or conceptnet."""
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
    """The sets of these names, all if none is given; conceptnet means both facts/conceptnet and prompts/conceptnet."""
    wanted = {name.strip("/") for name in names}
    known = {name for data_set in SETS for name in data_set.names}
    if unknown := sorted(wanted - known):
        raise BadOption(f"there is no data set {unknown[0]!r}{did_you_mean(unknown[0], sorted(known))}")
    return tuple(data_set for data_set in SETS if not wanted or data_set.names & wanted)
