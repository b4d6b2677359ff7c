"""The folder of a store, and what lies where in it.

STORE/
  store.json                 the store's own id, by which a worker elsewhere knows that it sees the same folder
  runs/<id>/                 a whole run; <id> is the hash of its spec
    spec.json                its RunSpec
    metrics.json             figures on test and dev, and what is known of the mixture
    facts.parquet            what was made of each test fact; dev.parquet: of each dev fact
    controls.parquet         what answers that need no knowledge made of them
    history.jsonl            dev scores while it was tuned; empty if it was not
    mixture/                 the saved mixture, if it was tuned
    environment.json         versions, git hash, seconds
  failed/<id>.json           why a run could not be done; it is tried again next time
  unfinished/                runs under way, or left behind by a killed process

A run under way: a folder of its own beside the whole runs, held by the process that works on it.

The lock dies with its process, so what nobody holds was left behind by a killed one. It can be taken over, with the
checkpoint in it, or removed. Nobody ever waits for a lock.
"""

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout
from pydantic import ValidationError

from askwell.errors import BadFile, CannotWrite, DamagedFile
from askwell.files import write_whole
from askwell.specs.run import RunSpec

RUNS, FAILED, UNFINISHED, STORE = "runs", "failed", "unfinished", "store.json"
SPEC, METRICS, ENVIRONMENT, HISTORY = "spec.json", "metrics.json", "environment.json", "history.jsonl"
PER_FACT, PER_DEV_FACT, MIXTURE = "facts.parquet", "dev.parquet", "mixture"
CONTROLS = "controls.parquet"
_FORMAT, _VERSION = "askwell-store", 1


@dataclass(frozen=True)
class Store:
    """A store that is there."""

    folder: Path
    id: str

    @property
    def unfinished(self) -> Path:
        """Where runs under way lie."""
        return self.folder / UNFINISHED

    def run_folder(self, run: str) -> Path:
        """The folder of a run, whether it is there or not."""
        return self.folder / RUNS / run

    def done(self) -> frozenset[str]:
        """The ids of all whole runs."""
        runs = self.folder / RUNS
        return frozenset(path.name for path in runs.iterdir()) if runs.is_dir() else frozenset()

    def is_done(self, run: str) -> bool:
        """Whether a run is whole."""
        return self.run_folder(run).is_dir()

    def spec(self, run: str) -> RunSpec:
        """The spec of a whole run."""
        path = self.run_folder(run) / SPEC
        try:
            return RunSpec.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise DamagedFile(f"{path} is damaged ({str(error).splitlines()[0]}); remove {path.parent}") from error

    def metrics(self, run: str) -> dict[str, Any]:
        """The figures of a whole run."""
        return self._read(self.run_folder(run) / METRICS)

    def environment(self, run: str) -> dict[str, Any]:
        """What a whole run was made with."""
        return self._read(self.run_folder(run) / ENVIRONMENT)

    def make(self) -> None:
        """Makes the store, if it is not there."""
        path = self.folder / STORE
        if not path.exists():
            write_whole(path, json.dumps({"format": _FORMAT, "version": _VERSION, "id": self.id}) + "\n")

    def put(self, run: str, files: Mapping[str, bytes]) -> None:
        """Keeps a run whose files were made elsewhere."""
        with Unfinished(run, self.unfinished) as unfinished:
            for name, content in files.items():
                write_whole(unfinished.result / name, content)
            unfinished.finish(self.run_folder(run))
        self.forget_failure(run)

    def note_failure(self, spec: RunSpec, message: str, trace: str | None) -> None:
        """Keeps why a run could not be done."""
        record = {"id": spec.id, "message": message, "traceback": trace, "spec": spec.model_dump(mode="json")}
        write_whole(self.folder / FAILED / f"{spec.id}.json", json.dumps(record, ensure_ascii=False, indent=1) + "\n")

    def forget_failure(self, run: str) -> None:
        """Removes the record of a failure, if there is one."""
        (self.folder / FAILED / f"{run}.json").unlink(missing_ok=True)

    def failures(self) -> list[dict[str, Any]]:
        """Why which runs could not be done."""
        folder = self.folder / FAILED
        return [self._read(path) for path in sorted(folder.glob("*.json"))] if folder.is_dir() else []

    def clean(self, but: frozenset[str] = frozenset()) -> int:
        """Removes what killed processes left behind, but not of runs that are to go on; says how many there were."""
        return remove_left_behind(self.unfinished, but)

    @staticmethod
    def _read(path: Path) -> dict[str, Any]:
        try:
            return json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise DamagedFile(f"{path} is damaged ({error}); remove it or its run's folder") from error


def new_or_open_store(folder: Path) -> Store:
    """The store in a folder; if there is none, one that is not on the disk until `make` is called."""
    return open_store(folder) if (folder / STORE).exists() else Store(folder, uuid.uuid4().hex)


def open_store(folder: Path) -> Store:
    """The store in a folder."""
    path = folder / STORE
    if not path.is_file():
        raise BadFile(folder, f"holds no {STORE}, so it is no store of runs; `askwell sweep` makes one")
    about = Store._read(path)
    if about.get("format") != _FORMAT or about.get("version") != _VERSION:
        raise DamagedFile(f"{path} is not of a store that this askwell reads (version {_VERSION})")
    return Store(folder, about["id"])


def is_store(folder: Path, id_: str) -> bool:
    """Whether a folder, as it is seen here, is the store of that id."""
    try:
        return open_store(folder).id == id_
    except (BadFile, DamagedFile):
        return False


_LOCK = ".lock"
_RESULT = "result"


class Unfinished:
    """The folder of a run under way, as a context. Left with an error it is removed; `finish` makes it whole."""

    def __init__(self, run: str, folder: Path) -> None:
        self._run, self._parent = run, folder

    def __enter__(self) -> "Unfinished":
        try:
            self._parent.mkdir(parents=True, exist_ok=True)
            self.folder, self._lock = self._take_over() or self._begin()
            self.result = self.folder / _RESULT
            shutil.rmtree(self.result, ignore_errors=True)
            self.result.mkdir()
        except OSError as error:
            raise CannotWrite(f"{self._parent} cannot be written: {error.strerror or error}") from error
        return self

    folder: Path
    """For checkpoints; what an earlier, killed process left is still there."""
    result: Path
    """For the files of the run; empty at the start."""

    def finish(self, target: Path) -> None:
        """Moves the result to its place, in one step. If another process was faster, its result stands."""
        try:
            _to_disk(self.result)
            target.parent.mkdir(parents=True, exist_ok=True)
            self.result.rename(target)
        except OSError as error:
            if not target.is_dir():
                raise CannotWrite(f"{target} cannot be written: {error.strerror or error}") from error

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        # Interrupted is not wrong: the checkpoint is kept, and the next process goes on with it.
        if kind is None or issubclass(kind, Exception):
            _remove(self.folder)
        self._lock.release()

    def _take_over(self) -> tuple[Path, FileLock] | None:
        for folder in sorted(self._parent.glob(f"{self._run}-*")):
            if folder.is_dir() and (lock := _hold(folder)) is not None:
                return folder, lock
        return None

    def _begin(self) -> tuple[Path, FileLock]:
        while True:
            folder = Path(tempfile.mkdtemp(dir=self._parent, prefix=f"{self._run}-"))
            lock = _hold(folder)
            if lock is not None:  # else somebody who cleans up was faster
                return folder, lock


def remove_left_behind(parent: Path, but: frozenset[str]) -> int:
    """Removes what killed processes left, except of the runs in `but`, which are to go on; says how many there were."""
    removed = 0
    for folder in sorted(parent.glob("*-*")) if parent.is_dir() else ():
        if not folder.is_dir() or folder.name.rpartition("-")[0] in but:
            continue
        lock = _hold(folder)
        if lock is not None:
            _remove(folder)
            lock.release()
            removed += 1
    for path in parent.glob(f"*{_LOCK}") if parent.is_dir() else ():
        if not path.with_suffix("").is_dir():
            path.unlink(missing_ok=True)
    return removed


def _hold(folder: Path) -> FileLock | None:
    """The lock of a folder; None if another process has it, or the folder is gone."""
    lock = FileLock(_lock_path(folder), timeout=0)
    try:
        lock.acquire()
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


def _to_disk(folder: Path) -> None:
    """Makes sure that the names in a folder are on the disk; the files themselves are already."""
    if os.name != "posix":
        return
    for inner in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        handle = os.open(inner, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
