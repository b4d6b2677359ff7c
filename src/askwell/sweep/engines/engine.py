"""What every engine does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from askwell.sweep.task import RunOutcome, RunTask

TRIES = 3
"""A run whose worker dies is tried so many times in all."""

Do = Callable[[RunTask], RunOutcome]


@dataclass(frozen=True)
class Started:
    """A run was given to a worker."""

    task: RunTask


@dataclass(frozen=True)
class Ended:
    """A run is whole, or could not be done."""

    task: RunTask
    outcome: RunOutcome


@dataclass(frozen=True)
class Lost:
    """The worker of a run died; the run is tried again."""

    task: RunTask
    reason: str


Event = Started | Ended | Lost


@runtime_checkable
class Engine(Protocol):
    """Does runs, somewhere."""

    @property
    def workers(self) -> int:
        """How many runs it does at once."""
        ...

    def run(self, tasks: Sequence[RunTask], do: Do, tell: Callable[[Event], None]) -> None:
        """Does all runs with `do`, and tells of each when it begins and ends. Interrupted it stops all work."""
        ...
