"""A bar for work that takes time, in a terminal or a notebook; nothing is drawn in a pipe."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_SECONDS_BEFORE = 2.0


class Bar:
    """A progress bar; call it with the amount done, the total, a text to show beside it, and the step if that is new.

    It appears once the work has taken `after` seconds, and disappears at the end. With `wanted=False`, or where nobody
    would see it, nothing is drawn.
    """

    def __init__(
        self, what: str, wanted: bool | None = None, console: Console | None = None, after: float = _SECONDS_BEFORE
    ) -> None:
        console = console or Console(stderr=True)
        self._is_seen = wanted is not False and (console.is_terminal or console.is_jupyter)
        name, text = (TextColumn(f"{{task.{part}}}", markup=False) for part in ("description", "fields[text]"))
        self._bar = Progress(
            name, BarColumn(), MofNCompleteColumn(), text, TimeRemainingColumn(), console=console, transient=True
        )
        self._task = self._bar.add_task(what, total=None, text="")
        self._what: str | None = what
        self._after, self._began = after, time.monotonic()

    def __enter__(self) -> Self:
        self._start_if_due()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._bar.live.is_started:
            self._bar.stop()

    def __call__(self, done: int, total: int, text: str = "", what: str | None = None) -> None:
        """Move the bar; where another step begins, it starts over."""
        self._start_if_due()
        if what not in (None, self._what):
            self._what = what
            self._bar.reset(self._task, description=what)
        self._bar.update(self._task, completed=done, total=total, text=text)

    def _start_if_due(self) -> None:
        is_due = time.monotonic() - self._began >= self._after
        if self._is_seen and is_due and not self._bar.live.is_started:
            self._bar.start()
