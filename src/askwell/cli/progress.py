"""Live progress of long jobs on stderr: evaluation, training, searches, sweeps. Without a terminal, only lines."""

import time
from types import TracebackType

from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from askwell.baselines.autoprompt import SearchProgress
from askwell.baselines.fine_tuning import FineTuningProgress
from askwell.baselines.run import BaselineProgress
from askwell.cli.terminal import log
from askwell.runs.engines import Ended, Event, Lost, Started
from askwell.runs.plan import Plan
from askwell.runs.worker import RunDone
from askwell.specs.run import RunSpec
from askwell.training.result import HistoryLine, TrainingProgress, badness, best_of


class EvaluationBar:
    """A bar over facts; call it with (facts done, all facts)."""

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

    def __enter__(self) -> "EvaluationBar":
        self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        """Moves the bar."""
        if self._task is None:
            self._task = self._bar.add_task("", total=total)
        self._bar.update(self._task, completed=done, total=total)


class TrainingBar:
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

    def __enter__(self) -> "TrainingBar":
        self._bar.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, state: TrainingProgress) -> None:
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

    def _print_record(self, state: TrainingProgress, record: HistoryLine, speed: str) -> None:
        dev = record.dev
        loss = "untuned    " if record.train_loss is None else f"loss {record.train_loss:6.3f}"
        dev_loss = "∞" if dev["log_loss"] is None else f"{dev['log_loss']:.3f}"
        best = "  ← best" if best_of(state.history) == record else ""
        width = len(str(state.pairs))
        log.print(
            f"{record.pairs:{width}}/{state.pairs} pairs  {loss}  dev P@1 {dev['P@1']:5.1f}  dev log-loss {dev_loss}"
            f"  {speed} pairs/s{best}",
            markup=False,
        )


class BaselineBar:
    """A bar over the work to do, and a line whenever dev improves."""

    def __init__(self) -> None:
        self._training: TrainingBar | None = None
        self._bar = Progress(
            TextColumn("{task.completed}/{task.total} {task.fields[unit]}"),
            BarColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TimeRemainingColumn(),
            console=log,
            transient=True,
            disable=not log.is_terminal,
        )
        self._task: TaskID | None = None
        self._best: tuple[float, ...] | None = None

    def __enter__(self) -> "BaselineBar":
        return self

    def __exit__(self, *_error: object) -> None:
        self._bar.stop()
        if self._training is not None:
            self._training.__exit__(None, None, None)

    def __call__(self, state: BaselineProgress) -> None:
        """Moves the bar, and prints a line for a better dev score."""
        if isinstance(state, SearchProgress):
            self._move(state.iteration, state.iterations, "iterations", state.loss)
            if state.record is not None:
                text = f"loss {state.loss:6.3f}  {state.record['template']}"
                self._tell(state.iteration, state.record["dev"], (state.record["unwanted"],), text)
        elif isinstance(state, FineTuningProgress):
            loss = state.record["train_loss"]
            self._move(state.epoch, state.epochs, "epochs", loss)
            self._tell(state.epoch, state.record["dev"], (), "untuned" if loss is None else f"loss {loss:6.3f}")
        else:
            if self._training is None:
                self._training = TrainingBar()
                self._training.__enter__()
            self._training(state)

    def _move(self, done: int, total: int, unit: str, loss: float | None) -> None:
        shown = "–" if loss is None else f"{loss:.3f}"
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task("", total=total, unit=unit, loss=shown)
        self._bar.update(self._task, completed=done, loss=shown)

    def _tell(self, at: int, dev: dict[str, float], first: tuple[int, ...], text: str) -> None:
        key = (*first, *badness(dev))
        is_better = self._best is None or key < self._best
        if is_better:
            self._best = key
            loss = "∞" if dev["log_loss"] is None else f"{dev['log_loss']:.3f}"
            log.print(f"{at:5}  dev P@1 {dev['P@1']:5.1f}  dev log-loss {loss}  {text}", markup=False)


_RUNNING_SHOWN = 8


class SweepBar:
    """Call it with each event of the sweep."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._began = plan, time.monotonic()
        self._running: dict[str, RunSpec] = {}
        self._done, self._failed, self._lost = len(plan.done), 0, 0
        self._best: dict[tuple[str, str], tuple[float, RunSpec]] = {}
        self._live = Live(get_renderable=self._table, console=log, refresh_per_second=2, transient=True)

    def __enter__(self) -> "SweepBar":
        if log.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._live.is_started:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        """Follows the event."""
        spec = event.task.spec
        if isinstance(event, Started):
            self._running[spec.id] = spec
            return
        self._running.pop(spec.id, None)
        if isinstance(event, Lost):
            self._lost += 1
            log.print(f"lost, trying again: {spec.label}: {event.reason}", markup=False)
        elif isinstance(event, Ended) and isinstance(event.outcome, RunDone):
            self._done += 1
            key, score = (spec.lm, spec.setting), event.outcome.p_at_1
            if spec.control is None and (key not in self._best or score > self._best[key][0]):
                self._best[key] = (score, spec)
            log.print(
                f"{self._done + self._failed:{len(str(len(self._plan.runs)))}}/{len(self._plan.runs)}  "
                f"P@1 {score:5.1f}  {event.outcome.seconds:6.1f} s  {spec.label}",
                markup=False,
            )
        elif isinstance(event, Ended):
            self._failed += 1
            log.print(f"failed: {spec.label}: {event.outcome.message}", markup=False, style="red")

    def _table(self) -> Table:
        table = Table(title=self._title(), title_justify="left", box=None)
        for name in ("LM", "setting", "", "P@1"):
            table.add_column(name, justify="right" if name == "P@1" else "left")
        for spec in list(self._running.values())[:_RUNNING_SHOWN]:
            what = f"running: {spec.relation}, {spec.prompts}, seed {spec.seed}"
            table.add_row(escape(spec.lm), escape(spec.setting), escape(what), "…")
        for (lm, setting), (score, spec) in self._best.items():
            what = f"best: {spec.relation}, {spec.prompts}"
            table.add_row(escape(lm), escape(setting), escape(what), f"{score:.1f}", style="bold")
        return table

    def _title(self) -> str:
        left = len(self._plan.runs) - self._done - self._failed
        counts = f"{self._done} done, {len(self._running)} running, {self._failed} failed, {left} left"
        lost = f", {self._lost} lost and tried again" if self._lost else ""
        return f"{counts}{lost}; {time.monotonic() - self._began:.0f} s"
