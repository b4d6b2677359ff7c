"""Pulls published sets over HTTP: goes on where it was cut off, and keeps nothing that is not what was published.

Takes published sets from a copy on this machine, checked like those that are fetched.

Whether the files of a set lie in a folder as they were published.
"""

import contextlib
import hashlib
import http.client
import os
import re
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, urlsplit

from filelock import FileLock, Timeout

from askwell.data.catalogue import DataFile, DataSet, Origin
from askwell.data.sources import pulled_data_folder
from askwell.errors import BadFile, BadOption, CannotWrite, DamagedFile, Failure
from askwell.files import write_whole
from askwell.version import VERSION

MIRROR_VARIABLE = "ASKWELL_DATA_MIRROR"
_HOST = "raw.githubusercontent.com"
_CHUNK = 1 << 16
_WORTH_ANOTHER_TRY = {408, 425, 429, 500, 502, 503, 504}


@dataclass(frozen=True)
class Patience:
    """How long a pull puts up with a bad line."""

    attempts: int = 5
    """For one file."""
    silence: float = 30.0
    """Seconds without a byte, after which a connection is given up."""
    pause: float = 1.0
    """Seconds before the second attempt; doubled before each further one."""
    longest_pause: float = 60.0
    """A server that asks to wait longer is asked again all the same."""


@dataclass(frozen=True)
class Progress:
    """Where a pull stands."""

    done: int
    """Bytes that are there, of all files that were asked for."""
    total: int
    files: int
    """Files that are there and right."""
    waiting: bool = False
    """Whether another pull is under way, which is waited for."""


@dataclass(frozen=True)
class Pulled:
    """What a pull did."""

    folder: Path
    fetched: int
    """Files that were fetched."""
    replaced: int
    """Of these, files that were there but altered."""
    already: int
    """Files that were there and right."""


class _Unsteady(Exception):
    """An attempt went wrong in a way that may not happen again."""

    def __init__(self, problem: str, wait: float = 0.0) -> None:
        self.wait = wait
        super().__init__(problem)


class _NotPublished(_Unsteady):
    """A whole file came, but another one."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"what came is not what was published ({problem})")


def pull(
    sets: Sequence[DataSet], progress: Callable[[Progress], None] | None = None, patience: Patience | None = None
) -> Pulled:
    """Fetches the files of the sets that are not in the cache, or are altered there.

    Each is written aside, checked and renamed. A pull that was cut off leaves the right files and the beginnings of
    others, and the next goes on from them; of two at once the second waits for the first.
    """
    patience = patience or Patience()
    tell = progress or (lambda _progress: None)
    base = mirror()
    folder = pulled_data_folder()
    total = sum(data_set.bytes for data_set in sets)
    with pull_lock(folder, lambda: tell(Progress(0, total, 0, waiting=True))):
        conditions = [condition(data_set, folder) for data_set in sets]
        wanted = [file for found in conditions for file in (*found.missing, *found.altered)]
        here = [file for found in conditions for file in found.right]
        tally = _Tally(tell, total, done=sum(file.bytes for file in here), files=len(here))
        _fetch_all(wanted, folder, base, patience, tally)
    return Pulled(folder, len(wanted), sum(len(found.altered) for found in conditions), len(here))


def mirror() -> str:
    """The address that files are fetched from: ASKWELL_DATA_MIRROR, or GitHub's host for raw files."""
    own = os.environ.get(MIRROR_VARIABLE)
    if not own:
        return f"https://{_HOST}"
    parts = urlsplit(own)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise BadOption(
            f"the environment variable {MIRROR_VARIABLE} is {own!r}: it must begin with http:// or https://"
        )
    return own.rstrip("/")


def address(base: str, origin: Origin) -> str:
    """Where a file is fetched from."""
    return "/".join([base, origin.repository, origin.commit, quote(origin.path)])


@contextlib.contextmanager
def pull_lock(folder: Path, tell_waiting: Callable[[], None]) -> Generator[None, None, None]:
    """Holds the folder of pulled data for one pull; the system lets go of it when a process dies."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            tell_waiting()
            lock.acquire()
    except OSError as error:
        raise CannotWrite(f"{folder} cannot be written: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()


class _Tally:
    """Adds up what several threads have fetched, and tells of it."""

    def __init__(self, tell: Callable[[Progress], None], total: int, done: int, files: int) -> None:
        self._tell, self._total, self._done, self._files = tell, total, done, files
        self._lock = threading.Lock()
        self.move(0)

    def move(self, change: int, files: int = 0) -> None:
        """Counts bytes (fewer, when some must be fetched again) and files."""
        with self._lock:
            self._done += change
            self._files += files
            self._tell(Progress(self._done, self._total, self._files))


def _fetch_all(wanted: Sequence[DataFile], folder: Path, base: str, patience: Patience, tally: _Tally) -> None:
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=8) as pool:
        jobs = [pool.submit(_fetch, file, folder / file.path, base, patience, tally, stop) for file in wanted]
        try:
            for job in as_completed(jobs):
                job.result()
        except BaseException:  # also Ctrl-C: threads stop at the next piece, and what they have is kept
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def _fetch(file: DataFile, target: Path, base: str, patience: Patience, tally: _Tally, stop: threading.Event) -> None:
    partial = target.with_name(f".{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("ab") as opened:
            growing = _Growing(file, partial, opened, tally)
            try:
                is_whole = _persist(address(base, file.origin), growing, patience, stop)
                os.fsync(opened.fileno())
            finally:
                if growing.size == 0:
                    partial.unlink()
        if is_whole:
            partial.replace(target)
            tally.move(0, files=1)
    except OSError as error:
        raise CannotWrite(f"{target} cannot be written: {error.strerror or error}") from error


class _Growing:
    """The beginning of a file, on disk beside its place."""

    def __init__(self, file: DataFile, path: Path, opened: BinaryIO, tally: _Tally) -> None:
        self.file, self._path, self._opened, self._tally = file, path, opened, tally
        self.size = opened.tell()
        tally.move(self.size)
        if self.size > file.bytes:
            self.start_again()

    @property
    def lacks(self) -> int:
        """How many bytes are still to come."""
        return self.file.bytes - self.size

    def add(self, piece: bytes) -> None:
        """Appends what has arrived."""
        self._opened.write(piece)
        self._opened.flush()  # so that a pull that is killed has it, too
        self.size += len(piece)
        self._tally.move(len(piece))

    def start_again(self) -> None:
        """Throws away what is there."""
        self._opened.truncate(0)
        self._tally.move(-self.size)
        self.size = 0

    def digest(self) -> str:
        """The hash of what is there."""
        return sha256_of(self._path)


def _persist(url: str, growing: _Growing, patience: Patience, stop: threading.Event) -> bool:
    """Whether the file is whole and right at the end; False means that we were told to stop."""
    for attempt in range(1, patience.attempts + 1):
        if stop.is_set():
            return False
        try:
            return _attempt(url, growing, patience, stop)
        except _Unsteady as trouble:
            if attempt == patience.attempts:
                raise _given_up(growing.file, url, attempt, trouble) from trouble
            doubled = patience.pause * 2 ** (attempt - 1)
            stop.wait(min(max(doubled, trouble.wait), patience.longest_pause))
    return False


def _attempt(url: str, growing: _Growing, patience: Patience, stop: threading.Event) -> bool:
    if growing.lacks:
        _fetch_the_rest(url, growing, patience, stop)
    if growing.lacks:
        if stop.is_set():
            return False
        raise _Unsteady(f"the file ended after {growing.size} of {growing.file.bytes} bytes")
    if (digest := growing.digest()) != growing.file.sha256:
        growing.start_again()
        raise _NotPublished(f"its SHA-256 is {digest}, not {growing.file.sha256}")
    return True


def _fetch_the_rest(url: str, growing: _Growing, patience: Patience, stop: threading.Event) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": f"askwell/{VERSION}"})
    if growing.size:
        request.add_header("Range", f"bytes={growing.size}-")
    try:
        with urllib.request.urlopen(request, timeout=patience.silence) as response:
            if growing.size and not _continues(response, growing.size):
                growing.start_again()
            _read(response, growing, stop)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # there is no such rest: what we have is no beginning of the file
            growing.start_again()
            raise _Unsteady("the server has nothing more to give") from error
        if error.code in _WORTH_ANOTHER_TRY:
            raise _Unsteady(f"the server answers {error.code} {error.reason}", _asked_wait(error)) from error
        raise Failure(
            f"{url} cannot be had: the server answers {error.code} {error.reason}. If you have a copy, take it with"
            " askwell data pull --from FOLDER"
        ) from error
    except TimeoutError as error:
        raise _Unsteady(f"nothing came for {patience.silence:g} seconds") from error
    except urllib.error.URLError as error:
        raise _Unsteady(f"no connection ({error.reason})") from error
    except (http.client.HTTPException, ConnectionError, ssl.SSLError) as error:
        raise _Unsteady(f"the connection broke off ({type(error).__name__})") from error


def _read(response: http.client.HTTPResponse, growing: _Growing, stop: threading.Event) -> None:
    while not stop.is_set():
        # read1 gives what has come so far, so that a line that breaks loses nothing of it.
        piece = response.read1(_CHUNK)
        if not piece:
            return
        if len(piece) > growing.lacks:
            growing.start_again()
            raise _NotPublished(f"it is longer than {growing.file.bytes} bytes")
        growing.add(piece)


def _continues(response: http.client.HTTPResponse, start: int) -> bool:
    """Whether an answer begins at byte `start`; a server is free to send the whole file instead."""
    place = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return response.status == 206 and place is not None and int(place.group(1)) == start


def _asked_wait(error: urllib.error.HTTPError) -> float:
    wait = error.headers.get("Retry-After", "")
    return float(wait) if wait.isdigit() else 0.0


def _given_up(file: DataFile, url: str, attempts: int, trouble: _Unsteady) -> Failure:
    kind = DamagedFile if isinstance(trouble, _NotPublished) else Failure
    return kind(
        f"{file.path} could not be fetched from {url} in {attempts} attempts; the last: {trouble}. What was fetched"
        " before is kept; run the same command again to go on"
    )


def take_from(copy: Path, sets: Sequence[DataSet]) -> Pulled:
    """Copies the files of the sets into the cache, none if any of them is missing or altered.

    `copy` is a data folder (facts/, prompts/ …) or a checkout of a repository that publishes the sets.
    """
    if not copy.is_dir():
        raise BadOption(f"--from {copy} is no folder")
    folder = pulled_data_folder()
    with pull_lock(folder, lambda: None):
        conditions = [condition(data_set, folder) for data_set in sets]
        wanted = [file for found in conditions for file in (*found.missing, *found.altered)]
        sources = _checked(copy, wanted)
        for file in wanted:
            write_whole(folder / file.path, sources[file.path].read_bytes())
            if not is_right(folder / file.path, file):
                (folder / file.path).unlink()
                raise DamagedFile(f"{sources[file.path]} changed while it was copied; run the same command again")
    return Pulled(
        folder,
        len(wanted),
        sum(len(found.altered) for found in conditions),
        sum(len(found.right) for found in conditions),
    )


def _checked(copy: Path, wanted: Sequence[DataFile]) -> dict[str, Path]:
    """Where each file lies in the copy, all of them right."""
    places = {file.path: [copy / file.path, copy / file.origin.path] for file in wanted}
    found = {path: next((place for place in those if place.is_file()), None) for path, those in places.items()}
    missing = [path for path, place in found.items() if place is None]
    if missing:
        raise BadFile(
            copy / missing[0],
            f"there is no such file; {len(missing)} of {len(wanted)} files are not in the copy. To take only some sets,"
            " name them; `askwell data list` shows the names",
        )
    sources = {path: place for path, place in found.items() if place is not None}
    for file in wanted:
        if not is_right(sources[file.path], file):
            raise DamagedFile(
                f"{sources[file.path]} is not what was published: its SHA-256 is {sha256_of(sources[file.path])}, not"
                f" {file.sha256}; nothing was taken"
            )
    return sources


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
