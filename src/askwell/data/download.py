"""Gets published sets into the cache, over HTTP or from a local copy, and keeps only what was published."""

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit

import pooch
import requests
from filelock import FileLock, Timeout

from askwell.data.data_folder import pulled_data_folder
from askwell.data.published import Condition, DataFile, DataSet, Origin, condition
from askwell.errors import BadFile, BadOption, CannotWrite, DamagedFile, Failure
from askwell.files import read_bytes, write_all, writing
from askwell.version import VERSION

MIRROR_VARIABLE = "ASKWELL_DATA_MIRROR"
_HOST = "raw.githubusercontent.com"
_WORTH_ANOTHER_TRY = {408, 425, 429, 500, 502, 503, 504}


@dataclass(frozen=True)
class PullProgress:
    """The progress of a pull."""

    done: int
    """Bytes of the requested files that are in the cache."""
    total: int
    files: int
    """Files that are in the cache and intact."""
    waiting: bool = False
    """Whether it is waiting for another pull to finish."""


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
    progress: Callable[[PullProgress], None] | None = None,
    *,
    attempts: int = 5,
    timeout: float = 30.0,
) -> Pulled:
    """Fetch the files of the sets that are not in the cache, or are altered there.

    A file is moved into place only when it is complete and its hash is right, so the next pull continues where one was
    interrupted. Of two pulls at the same time, the second waits for the first. `timeout` is how many seconds a server
    may stay silent.
    """
    tell = progress or (lambda _progress: None)
    base, folder = mirror(), pulled_data_folder()
    total = sum(data_set.bytes for data_set in sets)
    with _lock(folder, lambda: tell(PullProgress(0, total, 0, waiting=True))):
        conditions = [condition(data_set, folder) for data_set in sets]
        here = [file for found in conditions for file in found.right]

        def tell_progress() -> None:
            tell(PullProgress(sum(file.bytes for file in here), total, len(here)))

        def tell_done(file: DataFile) -> None:
            here.append(file)
            tell_progress()

        tell_progress()
        wanted = [file for found in conditions for file in found.wanted]
        _fetch_all(wanted, folder, base, attempts, timeout, tell_done)
    return _pulled(folder, conditions)


def take_from(copy: Path, sets: Sequence[DataSet]) -> Pulled:
    """Copy the files of the sets into the cache, none if any of them is missing or altered.

    `copy` is a data folder (facts/, prompts/ …) or a checkout of a repository that publishes the sets.
    """
    if not copy.is_dir():
        raise BadOption(f"`copy` {copy} is not a folder", copy="--from")
    folder = pulled_data_folder()
    with _lock(folder, lambda: None):
        conditions = [condition(data_set, folder) for data_set in sets]
        contents = _contents(copy, [file for found in conditions for file in found.wanted])
        write_all({folder / path: content for path, content in contents.items()})
    return _pulled(folder, conditions)


def mirror() -> str:
    """Return the address that files are fetched from: ASKWELL_DATA_MIRROR, or GitHub's host for raw files."""
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
    """Return the URL of a file."""
    return "/".join([base, origin.repository, origin.commit, quote(origin.path)])


def _pulled(folder: Path, conditions: Sequence[Condition]) -> Pulled:
    return Pulled(
        tuple(found.data_set.name for found in conditions),
        folder,
        fetched=sum(len(found.wanted) for found in conditions),
        replaced=sum(len(found.altered) for found in conditions),
        already_here=sum(len(found.right) for found in conditions),
    )


@contextlib.contextmanager
def _lock(folder: Path, tell_waiting: Callable[[], None]) -> Generator[None]:
    """Hold the folder of pulled data for one pull; the system releases the lock when a process dies."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            tell_waiting()
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _fetch_all(
    files: Sequence[DataFile],
    folder: Path,
    base: str,
    attempts: int,
    timeout: float,
    tell_done: Callable[[DataFile], None],
) -> None:
    """Fetch the files side by side; pooch moves each to its place when its hash is right."""
    pooch.get_logger().setLevel("ERROR")  # it would print a line for each file
    for left_over in folder.glob("**/tmp*"):  # a file that pooch was fetching for a pull that was killed
        left_over.unlink(missing_ok=True)
    with ThreadPoolExecutor(max_workers=8) as pool:
        source = pooch.Pooch(
            folder,
            base,
            urls={file.path: address(base, file.origin) for file in files},
            retry_if_failed=attempts - 1,
        )
        source.registry.update({file.path: file.sha256 for file in files})
        stopped = threading.Event()
        try:
            jobs = {pool.submit(_fetch, source, file.path, timeout, stopped): file for file in files}
            for job in as_completed(jobs):
                job.result()
                tell_done(jobs[job])
        except BaseException:  # also Ctrl-C: no further file is started, and none is retried
            stopped.set()
            pool.shutdown(cancel_futures=True)
            raise


def _fetch(source: pooch.Pooch, path: str, timeout: float, stopped: threading.Event) -> None:
    place = source.abspath / path
    # Read in one go, which closes the connection whatever happens: the largest file has 170 KB.
    http = pooch.HTTPDownloader(stream=False, timeout=timeout, headers={"User-Agent": f"askwell/{VERSION}"})

    def download(url: str, output_file: Any, source: Any) -> None:
        if stopped.is_set():
            raise Failure(f"{path} was not fetched: the pull was stopped")
        try:
            http(url, output_file, source)
        except requests.RequestException as error:
            if error.response is None or error.response.status_code in _WORTH_ANOTHER_TRY:
                raise
            raise Failure(
                f"{url} is not available: {_reason(error, timeout)}. If you have a copy, use it with"
                " askwell data pull --from FOLDER"
            ) from error

    def given_up(reason: str) -> str:
        return (
            f"{path} could not be fetched from {source.get_url(path)} in {source.retry_if_failed + 1} attempts; the"
            f" last: {reason}. Files that were fetched before are kept; the same command continues from there"
        )

    try:
        place.parent.mkdir(parents=True, exist_ok=True)  # pooch fails if two threads make it at once
        source.fetch(path, downloader=cast(Any, download))  # only the argument's name differs
        place.chmod(0o644)  # pooch's temporary files are for one user alone
    except requests.RequestException as error:  # an OSError, and sometimes a ValueError, so it comes first
        raise Failure(given_up(_reason(error, timeout))) from error
    except ValueError as error:  # how pooch reports a wrong hash
        raise DamagedFile(given_up(f"the file differs from the published one ({error})")) from error
    except OSError as error:
        raise CannotWrite(f"{place} cannot be written: {error.strerror or error}") from error


def _reason(error: requests.RequestException, timeout: float) -> str:
    """Return what went wrong, as a phrase."""
    if error.response is not None:
        return f"the server answers {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout) or "timed out" in str(error):
        return f"no data for {timeout:g} seconds"
    if isinstance(error, requests.ConnectionError):
        cause = error.args[0] if error.args else error
        return f"no connection ({str(getattr(cause, 'reason', cause)).rpartition(': ')[2]})"
    return f"the transfer failed ({error})"


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
        digest = hashlib.sha256(contents[file.path]).hexdigest()
        if digest != file.sha256:
            raise DamagedFile(
                f"{sources[file.path]} differs from the published file: its SHA-256 is {digest}, not {file.sha256};"
                " nothing was copied"
            )
    return contents
