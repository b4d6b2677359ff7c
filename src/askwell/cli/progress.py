"""Live progress of long jobs, on stderr."""

import time
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from askwell.cli.terminal import log
from askwell.training.loop import Progress as TrainingState
from askwell.training.loop import best_of


class EvaluationProgress:
    """A bar over facts; call it with (facts done, facts in all)."""

    def __init__(self, what: str) -> None:
        self._bar = Progress(
            TextColumn(what),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=log,
            transient=True,
            disable=not log.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> "EvaluationProgress":
        self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        """Moves the bar."""
        if self._task is None:
            self._task = self._bar.add_task("", total=total)
        self._bar.update(self._task, completed=done, total=total)


class TrainingProgress:
    """A bar over the pairs of the run, and a line whenever dev has been scored."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.completed}/{task.total} pairs"),
            BarColumn(),
            TextColumn("loss {task.fields[loss]}  {task.fields[speed]} pairs/s"),
            TimeRemainingColumn(),
            TextColumn("left at most"),
            console=log,
            transient=True,
            disable=not log.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, loss="–", speed="–")
        self._began, self._began_at = time.monotonic(), 0

    def __enter__(self) -> "TrainingProgress":
        self._bar.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, state: TrainingState) -> None:
        """Moves the bar, and prints a line when dev has been scored."""
        seconds, pairs = time.monotonic() - self._began, state.pairs_done - self._began_at
        speed = f"{pairs / seconds:.0f}" if seconds > 0 and pairs > 0 else "–"
        self._bar.update(
            self._task,
            total=state.pairs,
            completed=state.pairs_done,
            loss="–" if state.loss is None else f"{state.loss:.3f}",
            speed=speed,
        )
        if state.record is not None:
            self._print_record(state, state.record, speed)
            self._began, self._began_at = time.monotonic(), state.pairs_done

    def _print_record(self, state: TrainingState, record: dict[str, Any], speed: str) -> None:
        dev = record["dev"]
        loss = "untuned    " if record["train_loss"] is None else f"loss {record['train_loss']:6.3f}"
        dev_loss = "∞" if dev["log_loss"] is None else f"{dev['log_loss']:.3f}"
        best = "  ← best" if best_of(state.history) == record else ""
        width = len(str(state.pairs))
        log.print(
            f"{record['pairs']:{width}}/{state.pairs} pairs  {loss}  dev P@1 {dev['P@1']:5.1f}  dev log-loss {dev_loss}"
            f"  {speed} pairs/s{best}",
            markup=False,
        )
