"""The published sets: what they are, where they come from, the hash of every file, whether the files in a folder are
intact, and getting them into the cache, over HTTP or from a local copy."""

import contextlib
import hashlib
import json
import os
import shutil
import threading
import tomllib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlsplit

import httpx
from filelock import FileLock, Timeout
from pydantic import TypeAdapter

from askwell.data.names import pulled_data_folder
from askwell.errors import BadFile, BadOption, DamagedFile, Failure, did_you_mean, first_few
from askwell.files import read_bytes, write_all, write_whole, writing
from askwell.version import VERSION

MIRROR_VARIABLE = "ASKWELL_DATA_MIRROR"
_WORTH_ANOTHER_TRY = {408, 425, 429, 500, 502, 503, 504}
_PAUSE = 1.0
"""Seconds before the second attempt to fetch a file; further pauses grow up to ten times as long."""

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
        found, prefix = [], f"{self.name}/"
        for path, about in _manifest().items():
            if path.startswith(prefix):
                name = path.removeprefix(prefix)
                origin = self.elsewhere.get(name) or replace(self.origin, path=f"{self.origin.path}/{name}")
                found.append(DataFile(path, origin, **about))
        return tuple(found)

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


@cache
def _manifest() -> Mapping[str, Mapping[str, Any]]:
    return json.loads(files("askwell.data").joinpath("manifest.json").read_text(encoding="utf-8"))


SETS = TypeAdapter(tuple[DataSet, ...]).validate_python(
    tomllib.loads(files("askwell.data").joinpath("sets.toml").read_text(encoding="utf-8"))["sets"]
)


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


def need_right(folder: Path, conditions: Sequence[Condition], *, all_here: bool) -> None:
    """Raise if a file is missing or altered in a set that is there; with `all_here`, also if a set is missing."""
    wrong = [found for found in conditions if not found.is_whole and (all_here or not found.is_absent)]
    if wrong:
        files = [file.path for found in wrong for file in found.wanted]
        raise DamagedFile(
            f"{len(files)} {'file' if len(files) == 1 else 'files'} in {folder} missing or not as published:"
            f" {first_few(files, 5)}. Pull them again with: askwell data pull"
            f" {' '.join(found.data_set.name for found in wrong)}"
        )


def condition(data_set: DataSet, folder: Path) -> Condition:
    """Return which files of the set `folder` has, and which of them have the right hash."""
    right, missing, altered = [], [], []
    for file in data_set.files:
        path = folder / file.path
        if not path.is_file():
            missing.append(file)
        else:
            (right if _sha256(read_bytes(path)) == file.sha256 else altered).append(file)
    return Condition(data_set, tuple(right), tuple(missing), tuple(altered))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Pulled:
    """What a pull did."""

    sets: tuple[str, ...]
    """The names of the sets that were asked for."""
    folder: Path
    fetched: int
    """Files that were fetched."""
    replaced: int
    """Of these, files that were there, but altered."""
    already_here: int
    """Files that were already there and intact."""


def pull_sets(
    sets: Sequence[DataSet],
    progress: Callable[[int, int, int], None] = lambda _done, _total, _files: None,
    *,
    note: Callable[[str], None] = lambda _text: None,
    copy: Path | None = None,
    attempts: int = 5,
    timeout: float = 30.0,
) -> Pulled:
    """Get the files of the sets that are not in the cache, or are altered there.

    A file is moved into place only when it is complete and its hash is right, so the next pull continues where one was
    interrupted. Of two pulls at the same time, the second waits for the first. `progress` is called with the bytes that
    are in the cache, of how many, and in how many files. `timeout` is how many seconds a server may stay silent.

    With `copy`, a data folder (facts/, prompts/ …) or a checkout of a repository that publishes the sets, files are
    taken from there, and none if any of them is missing or altered.
    """
    if copy is not None and not copy.is_dir():
        raise BadOption(f"`copy` {copy} is not a folder", copy="--from")
    folder = pulled_data_folder()
    total = sum(data_set.bytes for data_set in sets)
    with _lock(folder, note):
        for left_over in [*folder.glob("**/.*/new")]:  # a file that a pull was writing when it was killed
            shutil.rmtree(left_over.parent)
        conditions = [condition(data_set, folder) for data_set in sets]
        here = [file for found in conditions for file in found.right]
        wanted = [file for found in conditions for file in found.wanted]
        if copy is not None:
            contents = _contents(copy, wanted)
            write_all({folder / path: content for path, content in contents.items()})
        else:
            progress(sum(file.bytes for file in here), total, len(here))
            for file in _fetch_all(wanted, folder, attempts, timeout):
                here.append(file)
                progress(sum(file.bytes for file in here), total, len(here))
    return Pulled(
        tuple(data_set.name for data_set in sets),
        folder,
        fetched=len(wanted),
        replaced=sum(len(found.altered) for found in conditions),
        already_here=sum(len(found.right) for found in conditions),
    )


def mirror() -> str:
    """Return the address that files are fetched from: ASKWELL_DATA_MIRROR, or GitHub's host for raw files."""
    own = os.environ.get(MIRROR_VARIABLE)
    if not own:
        return "https://raw.githubusercontent.com"
    parts = urlsplit(own)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise BadOption(
            f"the environment variable {MIRROR_VARIABLE} is {own!r}: it must begin with http:// or https://"
        )
    return own.rstrip("/")


def address(base: str, origin: Origin) -> str:
    """Return the URL of a file."""
    return "/".join([base, origin.repository, origin.commit, quote(origin.path)])


@contextlib.contextmanager
def _lock(folder: Path, note: Callable[[str], None]) -> Generator[None]:
    """Hold the folder of pulled data for one pull; the system releases the lock when a process dies."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            note("waiting for another pull to finish")
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _fetch_all(files: Sequence[DataFile], folder: Path, attempts: int, timeout: float) -> Generator[DataFile]:
    """Fetch the files side by side, and yield each when it is in its place."""
    base = mirror()
    stopped = threading.Event()
    agent = {"User-Agent": f"askwell/{VERSION}"}
    with (
        httpx.Client(timeout=timeout, follow_redirects=True, headers=agent) as client,
        ThreadPoolExecutor(max_workers=8) as pool,
    ):
        try:
            jobs = {pool.submit(_fetch, client, base, file, folder, attempts, stopped): file for file in files}
            for job in as_completed(jobs):
                job.result()
                yield jobs[job]
        except BaseException:  # also Ctrl-C: no further file is started, and none is retried
            stopped.set()
            pool.shutdown(cancel_futures=True)
            raise


def _fetch(
    client: httpx.Client, base: str, file: DataFile, folder: Path, attempts: int, stopped: threading.Event
) -> None:
    url, kind, reason = address(base, file.origin), Failure, ""
    for attempt in range(attempts):
        if stopped.wait(min(attempt, 10) * _PAUSE):
            raise Failure(f"{file.path} was not fetched: the pull was stopped")
        kind = Failure
        try:
            content = client.get(url).raise_for_status().content
        except httpx.HTTPStatusError as error:
            reason = f"the server answers {error.response.status_code} {error.response.reason_phrase}"
            if error.response.status_code not in _WORTH_ANOTHER_TRY:
                raise Failure(
                    f"{url} is not available: {reason}. If you have a copy, use it with askwell data pull --from FOLDER"
                ) from error
        except httpx.TimeoutException:
            reason = f"no data for {client.timeout.read:g} seconds"
        except httpx.ConnectError as error:
            reason = f"no connection ({error})"
        except httpx.HTTPError as error:
            reason = f"the transfer failed ({error})"
        else:
            if (digest := _sha256(content)) == file.sha256:
                write_whole(folder / file.path, content)
                return
            kind = DamagedFile
            reason = f"the file differs from the published one: its SHA-256 is {digest}, not {file.sha256}"
    raise kind(
        f"{file.path} could not be fetched from {url} in {attempts} attempts; the last: {reason}. Files that were "
        "fetched before are kept; the same command continues from there"
    )


def _contents(copy: Path, wanted: Sequence[DataFile]) -> dict[str, bytes]:
    """Return the content of each file by its path in the data folder, all of them as published."""
    places = [(file, copy / path) for file in wanted for path in (file.path, file.origin.path)]
    sources = {file.path: place for file, place in reversed(places) if place.is_file()}
    missing = [file.path for file in wanted if file.path not in sources]
    if missing:
        raise BadFile(
            copy / missing[0],
            f"there is no such file; {len(missing)} of {len(wanted)} files are not in the copy. To copy only some sets,"
            " name them; `askwell data list` shows the names",
        )
    contents = {}
    for file in wanted:
        contents[file.path] = read_bytes(sources[file.path])
        digest = _sha256(contents[file.path])
        if digest != file.sha256:
            raise DamagedFile(
                f"{sources[file.path]} differs from the published file: its SHA-256 is {digest}, not {file.sha256};"
                " nothing was copied"
            )
    return contents
