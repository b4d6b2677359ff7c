"""The rule that every command keeps, whatever it is given.

It ends with 0, 1 or 2; where it fails, with one message of at most 2,000 characters and no traceback, and nothing half
written. It writes to no file but its output, the cache and temporary files, of which it leaves none; it starts no other
program and connects to nothing. It comes to an end, and does so in less than 2 GiB.
"""

import contextlib
import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from askwell.cli.main import main
from askwell.views.printable import MOST_CHARACTERS

CPU_SECONDS = 30
"""Of a command that takes milliseconds; processor time, so that a busy machine does not matter."""
SECONDS = 600
"""For a command that waits for something without using the processor."""
MOST_MEMORY = 2 * 2**30
_RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")
_PULL_LOCK = re.compile("tmp/askwell-[0-9a-f]{16}[.]lock")
"""An empty file that stays: whoever waits for a lock must find the same file."""
_SHELL_COLOURS = re.compile("\x1b\\[[0-9;]*m")


class Broken(AssertionError):
    """A command that did not keep the rule."""


class Reached(BaseException):
    """A command has read all that it reads, and would begin its work."""


class _Hangs(BaseException):
    """A command that does not come to an end."""


def stop_here(*_arguments: Any, **_options: Any) -> NoReturn:
    """Stands in for the work of a command."""
    raise Reached


@dataclass
class _Watch:
    """What a command does to the world, as Python's audit events tell it."""

    allowed: tuple[str, ...] = ()
    seen: list[str] = field(default_factory=list)
    is_on: bool = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_on:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
                self._written(event, path)
        elif event in ("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime"):
            self._written(event, arguments[0])
        elif event in ("os.rename", "os.link", "os.symlink"):
            self._written(event, arguments[0])
            self._written(event, arguments[1])
        elif event in ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pickle.find_class"):
            self.seen.append(f"{event} {arguments!r:.200}")
        elif event == "socket.connect" and not isinstance(arguments[1], str):
            self.seen.append(f"{event} {arguments[1]!r:.200}")

    def _written(self, event: str, path: Any) -> None:
        if isinstance(path, int):
            return
        full = os.path.realpath(os.fsdecode(path))
        if full in ("/dev/null", "/dev/full") or full.startswith(self.allowed):
            return
        self.seen.append(f"{event} {full}")


_WATCH = _Watch()
sys.addaudithook(_WATCH)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def hold(arguments: Sequence[object], case: Path, cache: Path) -> Ended:
    """Runs a command line in the folder of a case, and raises Broken if it does not keep the rule.

    The command may write to `out` in that folder, and runs so far below it that `../../../outside` is still in it.
    """
    words = [str(argument) for argument in arguments]
    out, temporary = case / "out", case / "tmp"
    working = out / "a" / "b" / "c"
    working.mkdir(parents=True, exist_ok=True)
    temporary.mkdir(exist_ok=True)
    before, memory = _listing(case), _memory_peak(reset=True)
    _WATCH.allowed = tuple(f"{os.path.realpath(folder)}" for folder in (out, temporary, cache))
    _WATCH.seen.clear()
    printed, told = io.StringIO(), io.StringIO()
    with _at(working), _limited(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(told):
        code, problem = _run(words)
    ended = Ended(code, printed.getvalue(), told.getvalue())
    left = _listing(case)
    if problem is None:
        problem = _problem(ended, memory)
    if problem is None and left.keys() - before.keys():
        names = sorted(left.keys() - before.keys())
        names = [name for name in names if not _PULL_LOCK.fullmatch(name) and not _is_of_begun_run(name, before)]
        half = [name for name in names if name.startswith("tmp/") or (_is_half(name) and not _is_named(name, words))]
        if half or (names and code):
            problem = f"left behind: {(half or names)[:5]}"
    if problem is None:
        changed = [name for name, stamp in before.items() if left.get(name) != stamp and not name.startswith("out")]
        problem = f"changed: {changed[:5]}" if changed else None
    if problem is not None:
        raise Broken(f"askwell {' '.join(map(_shortened, words))}\n{problem}\n{ended.err[-3000:]}")
    return ended


def _problem(ended: Ended, memory_before: int) -> str | None:
    if _WATCH.seen:
        return f"did more than it may: {_WATCH.seen[:3]}"
    if ended.code not in (0, 1, 2):
        return f"exit code {ended.code}"
    if "Traceback (most recent" in ended.out + ended.err:
        return "a traceback"
    if "unexpected error (" in ended.err:
        return "an unexpected error"
    if raw := _RAW.search(_SHELL_COLOURS.sub("", ended.out + ended.err)):
        return f"{raw[0]!r} was printed as it is"
    messages = re.findall("^askwell: ", ended.err, re.MULTILINE)
    if ended.code and len(messages) != 1:
        return f"{len(messages)} messages"
    if ended.code and len(ended.err.rpartition("askwell: ")[2]) > MOST_CHARACTERS:
        return "a message that is too long"
    grown = _memory_peak(reset=False) - memory_before
    if grown > MOST_MEMORY // 2:
        return f"{grown / 2**30:.1f} GiB more memory"
    return None


def _run(words: list[str]) -> tuple[int, str | None]:
    """The exit code, and what was wrong on the way."""
    try:
        main(words)
    except SystemExit as stop:
        return int(stop.code or 0), None
    except Reached:
        return 0, None
    except _Hangs:
        return -1, "it does not end\n" + "".join(traceback.format_exc()[-2000:])
    except BaseException:
        return -1, "".join(traceback.format_exc()[-3000:])


@contextlib.contextmanager
def _at(folder: Path) -> Generator[None]:
    before = Path.cwd()
    os.chdir(folder)
    _WATCH.is_on = True
    try:
        yield
    finally:
        _WATCH.is_on = False
        os.chdir(before)


@contextlib.contextmanager
def _limited() -> Generator[None]:
    """Ends what uses too much processor time, or waits too long."""

    def hangs(_signal: int, _frame: object) -> NoReturn:
        raise _Hangs

    old = {number: signal.signal(number, hangs) for number in (signal.SIGVTALRM, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    terminated = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in old.items():
            signal.signal(number, handler)
        signal.signal(signal.SIGTERM, terminated)


def _listing(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(root, name)  # noqa: PTH118 - this runs twice for each of a hundred thousand cases
            state = os.lstat(path)
            is_folder = name in folders
            stamp = (0, 0) if is_folder else (state.st_size, state.st_mtime_ns)
            found[os.path.relpath(path, folder)] = stamp
    return found


def _is_half(name: str) -> bool:
    last = name.rpartition("/")[2]
    return (last.startswith(".") and last != ".written-by-askwell") or last.endswith(
        (".new", ".part", ".tmp", ".aside")
    )


def _is_named(name: str, words: list[str]) -> bool:
    """Whether a file has the name that the command line asks for, however odd."""
    return any(name.rpartition("/")[2] in re.split("[=/]", word) for word in words)


def _is_of_begun_run(name: str, before: dict[str, tuple[int, int]]) -> bool:
    """Whether a file is the history of a run that had begun before, and can still be continued."""
    folder, _, last = name.rpartition("/")
    return last == "history.jsonl" and f"{folder}/checkpoint.safetensors" in before


def _memory_peak(*, reset: bool) -> int:
    """The most memory that this process had since it was last reset; 0 where the system does not tell."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def _shortened(word: str) -> str:
    shown = ascii(word)
    return shown if len(shown) < 200 else f"{shown[:150]}… ({len(word)} characters)"
