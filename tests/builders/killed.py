"""Work that is killed (`kill -9`) at a chosen one of its steps on disk, in a forked process.

A step is a file that is opened for writing, renamed or removed, or a folder that is made, inside the folder that the
work writes to. So a kill hits the same place on a fast machine and on a slow one, and nothing has to be waited for.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FULL = bool(os.environ.get("ASKWELL_TEST_FULL"))
_PLACES = {"os.rename": 1, "os.mkdir": 0, "os.remove": 0, "os.rmdir": 0}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def count_steps(folder: Path, work: Callable[[], object]) -> int:
    """Does the work in a forked process, and counts its steps in a folder."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        seen = _count(folder, lambda _steps: None)
        _do(work, lambda: os.write(writing, str(seen[0]).encode()))
    os.close(writing)
    with open(reading, "rb") as pipe:  # noqa: PTH123 - of a handle
        told = pipe.read()
    assert os.waitpid(process, 0)[1] == 0
    return int(told)


def kill_at(step: int, folder: Path, work: Callable[[], object]) -> bool:
    """Does the work in a forked process that is killed at that step; whether it came so far."""
    process = os.fork()
    if process == 0:
        _count(folder, lambda steps: os.kill(os.getpid(), signal.SIGKILL) if steps == step else None)
        _do(work, lambda: None)
    status = os.waitpid(process, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert status == 0
    return False


def spread(steps: int, kills: int) -> Iterator[int]:
    """So many steps, from the first to the last; a single one is in the middle."""
    if kills == 1:
        yield (steps + 1) // 2
        return
    yield from sorted({1 + round(number * (steps - 1) / (kills - 1)) for number in range(kills)})


def _count(folder: Path, at: Callable[[int], object]) -> list[int]:
    """Counts the steps from now on, and tells of each before it is done."""
    seen, lock, inside = [0], threading.Lock(), os.path.realpath(folder)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & _WRITES:
                return
        elif event in _PLACES:
            path = arguments[_PLACES[event]]
        else:
            return
        if isinstance(path, int) or not os.path.realpath(os.fsdecode(path)).startswith(inside):
            return
        with lock:
            seen[0] += 1
            at(seen[0])

    sys.addaudithook(hook)
    return seen


def _do(work: Callable[[], object], afterwards: Callable[[], object]) -> None:
    """Does the work and ends the process, without anything that a test session does at its end."""
    code = 1
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            work()
        except SystemExit as stop:
            code = int(stop.code or 0)
        else:
            code = 0
        afterwards()
    finally:
        os._exit(code)
