"""Live progress of a baseline, on stderr."""

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from askwell.baselines.autoprompt import SearchProgress
from askwell.baselines.dev_score import badness
from askwell.baselines.fine_tuning import FineTuningProgress
from askwell.baselines.run import BaselineProgress
from askwell.cli.progress import TrainingProgress
from askwell.cli.terminal import log


class BaselineBar:
    """A bar over what there is to do, and a line whenever dev has got better."""

    def __init__(self) -> None:
        self._training: TrainingProgress | None = None
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
                self._training = TrainingProgress()
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
