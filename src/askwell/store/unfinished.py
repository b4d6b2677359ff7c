"""A run under way: a folder of its own beside the whole runs, held by the process that works on it.

The lock dies with its process, so what nobody holds was left behind by a killed one. It can be taken over, with the
checkpoint in it, or removed. Nobody ever waits for a lock.
"""

import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

from askwell.errors import CannotWrite

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
