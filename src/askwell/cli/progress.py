"""Live progress of long jobs, on stderr."""

import time
from types import TracebackType

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
    """A bar over the facts of all epochs, and a line for each epoch that has ended."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            TextColumn("loss {task.fields[loss]}  {task.fields[speed]} facts/s"),
            TimeRemainingColumn(),
            TextColumn("left at most"),
            console=log,
            transient=True,
            disable=not log.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, epoch="0", loss="–", speed="–")
        self._epoch_began = time.monotonic()

    def __enter__(self) -> "TrainingProgress":
        self._bar.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, state: TrainingState) -> None:
        """Moves the bar, and prints a line at the end of an epoch."""
        seconds = time.monotonic() - self._epoch_began
        done = max(0, state.epoch - 1) * state.facts + state.facts_done
        speed = f"{state.facts_done / seconds:.0f}" if seconds > 0 and state.facts_done else "–"
        self._bar.update(
            self._task,
            total=state.epochs * state.facts,
            completed=done,
            epoch=f"{state.epoch}/{state.epochs}",
            loss="–" if state.loss is None else f"{state.loss:.3f}",
            speed=speed,
        )
        if state.record is not None:
            self._print_epoch(state, speed)
            self._epoch_began = time.monotonic()

    def _print_epoch(self, state: TrainingState, speed: str) -> None:
        record = state.record
        if record is None:
            return
        dev = record["dev"]
        loss = "untuned    " if record["train_loss"] is None else f"loss {record['train_loss']:6.3f}"
        dev_loss = "∞" if dev["log_loss"] is None else f"{dev['log_loss']:.3f}"
        best = "  ← best" if best_of(state.history)["epoch"] == record["epoch"] else ""
        log.print(
            f"epoch {record['epoch']:2}/{state.epochs}  {loss}  dev P@1 {dev['P@1']:5.1f}  dev log-loss {dev_loss}"
            f"  {speed} facts/s{best}",
            markup=False,
        )
