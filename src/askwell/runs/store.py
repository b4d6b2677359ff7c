"""A store: a folder of runs, each either complete or absent. There is no server, and readers never have to wait.

STORE/
  store.json           the store's id, by which a worker elsewhere knows that it sees the same folder
  runs/<id>/           a complete run (see `record`); <id> is the hash of its spec
  failed/<id>.json     why a run failed; it is retried next time
  unfinished/          runs under way, or left behind by a killed process

A run under way has its own folder, locked by the process that works on it. The lock dies with its process, so a folder
that is not locked was left behind by a killed one: it can be taken over, with the checkpoint in it, or removed. A sweep
puts off a run that another one has under way. No process ever waits for a lock.
"""

import contextlib
import json
import shutil
import tempfile
import uuid
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict

from askwell.errors import BadFile, CannotWrite, DamagedFile, Failure
from askwell.files import read_saved, sync_to_disk, write_whole, writing
from askwell.runs.folder import Run, read_run
from askwell.specs.run_spec import RunSpec

RUNS, FAILED, UNFINISHED, STORE = "runs", "failed", "unfinished", "store.json"
_LOCK = ".lock"


class UnderWay(Failure):
    """Another process is executing the same run."""


class _About(BaseModel):
    """store.json."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal["askwell-store"] = "askwell-store"
    version: Literal[1] = 1
    id: str


class FailedRun(BaseModel):
    """Why a run failed."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    version: Literal[1] = 1
    id: str
    message: str
    traceback: str | None = None
    """Of an unexpected error."""
    spec: RunSpec

    @classmethod
    def of(cls, spec: RunSpec, message: str, traceback: str | None = None) -> "FailedRun":
        """Say why the run of a spec failed."""
        return cls(id=spec.id, message=message, traceback=traceback, spec=spec)


@dataclass(frozen=True)
class Store:
    """A store of runs."""

    folder: Path
    id: str

    @property
    def unfinished(self) -> Path:
        """Where runs under way are kept."""
        return self.folder / UNFINISHED

    def run_folder(self, run: str) -> Path:
        """Return the folder of a run, whether or not it exists."""
        return self.folder / RUNS / run

    def done(self) -> frozenset[str]:
        """Return the ids of all complete runs."""
        return frozenset(path.name for path in (self.folder / RUNS).glob("*"))

    def read(self, run: str) -> Run:
        """Read a complete run."""
        return read_run(self.run_folder(run))

    def runs(self) -> list[Run]:
        """Read all complete runs, sorted by id."""
        return [self.read(run) for run in sorted(self.done())]

    def make(self) -> "Store":
        """Create the store if it does not exist; return the one that is there, which another sweep may have created."""
        path = self.folder / STORE
        if not path.exists():
            write_whole(path, json.dumps(_About(id=self.id).model_dump()) + "\n")
        return open_store(self.folder)

    def put(self, run: str, files: Mapping[str, bytes]) -> None:
        """Store a run whose files were written elsewhere."""
        with unfinished_run(run, self.unfinished) as unfinished:
            for name, content in files.items():
                write_whole(unfinished.result / name, content)
            unfinished.finish(self.run_folder(run))

    def note_failure(self, failed: FailedRun) -> None:
        """Record why a run failed."""
        write_whole(self.folder / FAILED / f"{failed.id}.json", failed.model_dump_json(indent=1) + "\n")

    def failures(self) -> list[FailedRun]:
        """List which runs failed, and why; those that have succeeded since are left out."""
        paths = sorted((self.folder / FAILED).glob("*.json"))
        failed = [path for path in paths if not self.run_folder(path.stem).is_dir()]
        return [read_saved(path, FailedRun.model_validate_json) for path in failed]

    def clean(self, but: Collection[str] = ()) -> int:
        """Remove what killed processes left behind, except runs in `but`, which will continue; return how many."""
        removed = 0
        for folder in sorted(self.unfinished.glob("*-*")):
            if not folder.is_dir() or folder.name.rpartition("-")[0] in but:
                continue
            lock = _hold(folder)
            if lock is not None:
                _remove(folder)
                lock.release()
                removed += 1
        for path in (self.folder / FAILED).glob("*.json"):
            if self.run_folder(path.stem).is_dir():  # it has succeeded since
                path.unlink(missing_ok=True)
        for path in self.unfinished.glob(f"*{_LOCK}"):
            if not path.with_suffix("").is_dir():
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it is not there, or other sweeps have runs under way in it
            self.unfinished.rmdir()
        return removed

    def is_under_way(self, run: str) -> bool:
        """Tell whether a live process is executing the run."""
        return _is_held(run, self.unfinished)

    def is_here(self) -> bool:
        """Tell whether its folder, as seen from this process, is the same store."""
        try:
            return open_store(self.folder).id == self.id
        except (BadFile, DamagedFile):
            return False


def new_or_open_store(folder: Path) -> Store:
    """Open the store in a folder; if there is none, return one that is not on disk until `make` is called."""
    return open_store(folder) if (folder / STORE).exists() else Store(folder, uuid.uuid4().hex)


def open_store(folder: Path) -> Store:
    """Open the store in a folder."""
    path = folder / STORE
    if not path.is_file():
        raise BadFile(folder, f"holds no {STORE}, so it is not a store of runs; `askwell sweep` makes one")
    return Store(folder, read_saved(path, _About.model_validate_json).id)


@dataclass(frozen=True)
class Unfinished:
    """A run under way."""

    folder: Path
    """For checkpoints; what an earlier, killed process left behind is still there."""
    result: Path
    """For the files of the run; empty at the start."""

    def finish(self, target: Path) -> None:
        """Move the result into place atomically. If another process was faster, its result is kept."""
        try:
            with writing(target):
                sync_to_disk(self.result)
                target.parent.mkdir(parents=True, exist_ok=True)
                self.result.rename(target)
        except CannotWrite:
            if not target.is_dir():
                raise


@contextmanager
def unfinished_run(run: str, parent: Path, *, alone: bool = False) -> Generator[Unfinished]:
    """Yield a locked folder for a run under way, which is removed afterwards.

    With `alone`, UnderWay is raised if another live process is executing the run.
    """
    with writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        folder, lock = _held_folder(run, parent)
        if alone and _is_held(run, parent, but=folder):
            # Of two that begin at the same time, both may give way; they try again later.
            if not any(folder.iterdir()):
                _remove(folder)
            lock.release()
            raise UnderWay(f"another process is doing the run {run}")
        result = folder / "result"
        shutil.rmtree(result, ignore_errors=True)
        result.mkdir()
    is_interrupted = False
    try:
        yield Unfinished(folder, result)
    except BaseException as error:
        # An interrupt is not an error: the checkpoint is kept, and the next process continues from it.
        is_interrupted = not isinstance(error, Exception)
        raise
    finally:
        if not is_interrupted:
            _remove(folder)
        lock.release()


def _held_folder(run: str, parent: Path) -> tuple[Path, FileLock]:
    """Lock the folder of the run that a killed process left behind, or a new one; return it with its lock."""
    left = iter(sorted(folder for folder in parent.glob(f"{run}-*") if folder.is_dir()))
    while True:
        parent.mkdir(parents=True, exist_ok=True)
        try:
            folder = next(left, None) or Path(tempfile.mkdtemp(dir=parent, prefix=f"{run}-"))
        except FileNotFoundError:  # a sweep that has just ended removed the empty folder
            continue
        if (lock := _hold(folder)) is not None:  # otherwise its process is alive, or one that cleans up was faster
            return folder, lock


def _is_held(run: str, parent: Path, but: Path | None = None) -> bool:
    """Tell whether a live process holds a folder of the run other than `but`."""
    for folder in parent.glob(f"{run}-*"):
        if folder != but and folder.is_dir():
            lock = _hold(folder)
            if lock is not None:
                lock.release()
            elif folder.is_dir():
                return True
    return False


def _hold(folder: Path) -> FileLock | None:
    """Lock a folder and return the lock; None if another process has it, or the folder is gone."""
    lock = FileLock(_lock_path(folder))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    if folder.is_dir():
        return lock
    _lock_path(folder).unlink(missing_ok=True)
    lock.release()
    return None


def _lock_path(folder: Path) -> Path:
    return folder.with_name(folder.name + _LOCK)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _lock_path(folder).unlink(missing_ok=True)
