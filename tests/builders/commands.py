"""Commands run in this process, since a new one would take seconds to import torch and transformers; and commands in a
separate process that get a signal in the middle of their work."""

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from askwell.cli.main import main


def exit_code(*arguments: object) -> int:
    """Runs a command line, and gives its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    return int(stop.value.code or 0)


def refused(done: Any, *parts: object) -> None:
    """Checks that a command ended as a user's mistake, with a message that has these parts."""
    assert done.code == 2, done.err
    for part in parts:
        assert str(part) in done.err, done.err


@dataclass(frozen=True)
class Signalled:
    """How a command that got a signal ended."""

    code: int
    out: str
    err: str


_SIGNALS_ITSELF = """
import os, sys
from askwell.cli.main import main

number, name, times = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
seen = 0

def signal_at_the_last(event, arguments):
    global seen
    if event == "os.rename" and str(arguments[1]).endswith(name):
        seen += 1
        if seen == times:
            os.kill(os.getpid(), number)

sys.addaudithook(signal_at_the_last)
main(sys.argv[4:])
"""


def signalled(number: int, *arguments: object, before: str, times: int) -> Signalled:
    """Runs a command that gets a signal before it puts a file of that name into place for the given time.

    So it is in the middle of its work, however fast it runs.
    """
    told = (int(number), before, times, *arguments)
    done = subprocess.run(
        [sys.executable, "-c", _SIGNALS_ITSELF, *map(str, told)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    return Signalled(done.returncode, done.stdout, done.stderr)
