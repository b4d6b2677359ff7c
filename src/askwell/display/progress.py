"""A bar for work that takes more than two seconds, in a terminal or a notebook; nothing is drawn in a pipe."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_SECONDS_BEFORE = 2.0
Advance = Callable[[int, int], None]
"""Called with the amount done and the total."""


@contextmanager
def bar(what: str, wanted: bool | None = None, console: Console | None = None) -> Generator[Advance]:
    """Return a function that moves the bar; with `wanted=False`, or where nobody would see it, it does nothing."""
    console = console or Console(stderr=True)
    if wanted is False or not (console.is_terminal or console.is_jupyter):
        yield lambda _done, _total: None
        return
    columns = (TextColumn(what, markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    drawn = Progress(*columns, console=console, transient=True)
    task, began = drawn.add_task(what, total=None), time.monotonic()

    def advance(done: int, total: int) -> None:
        if not drawn.live.is_started and time.monotonic() - began > _SECONDS_BEFORE:
            drawn.start()
        drawn.update(task, completed=done, total=total)

    try:
        yield advance
    finally:
        drawn.stop()
