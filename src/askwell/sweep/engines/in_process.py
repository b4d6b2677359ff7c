"""The engine that does one run after the other, here."""

from collections.abc import Callable, Sequence

from askwell.sweep.engines.engine import Do, Ended, Event, Started
from askwell.sweep.task import RunTask


class InProcess:
    """Does runs in this process."""

    workers = 1

    def run(self, tasks: Sequence[RunTask], do: Do, tell: Callable[[Event], None]) -> None:
        """Does all runs in their order."""
        for task in tasks:
            tell(Started(task))
            tell(Ended(task, do(task)))
