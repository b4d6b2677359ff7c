"""Live progress of the demo: a bar over all its runs, and a line for each that is done."""

import time

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from askwell.cli.terminal import log
from askwell.demo.run import RunResult, Step
from askwell.facts import Fact
from askwell.testbed.world import told


class DemoProgress:
    """Call it with each step of the demo."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[run]} of {task.fields[runs]} runs"),
            TimeRemainingColumn(),
            console=log,
            transient=True,
            disable=not log.is_terminal,
        )
        self._task = self._bar.add_task("loading the LM", total=None, run=0, runs="?")
        self._began, self._width = time.monotonic(), 0

    def __enter__(self) -> "DemoProgress":
        self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._bar.stop()

    def __call__(self, step: Step) -> None:
        """Moves the bar, and prints a line when a run is whole."""
        name = f"{step.run.relation}: {_name_of(step)}"
        self._width = max(self._width, len(name))
        self._bar.update(
            self._task, description=name.ljust(self._width), total=step.runs, completed=step.number - 1 + step.share,
            run=step.number, runs=step.runs,
        )  # fmt: skip
        if step.share == 0.0:
            self._began = time.monotonic()
        if step.result is not None:
            took = "was there" if step.was_there else f"{time.monotonic() - self._began:.1f} s"
            width = len(str(step.runs))
            log.print(
                f"{step.number:{width}}/{step.runs}  {step.run.relation:16} {_name_of(step):24} "
                f"P@1 told {_share(step.result, is_told=True)}  withheld {_share(step.result, is_told=False)}  {took}",
                markup=False,
                style="bold" if step.run.method.tuned else None,
            )
            self._began = time.monotonic()


def _name_of(step: Step) -> str:
    return f"{'soft' if step.run.method.tuned else 'hard'}, {step.run.method.label}"


def _share(result: RunResult, *, is_told: bool) -> str:
    facts = told(result.run.relation)
    ranks = [outcome.rank for outcome in result.outcomes if (Fact(outcome.x, outcome.y) in facts) == is_told]
    return f"{100 * sum(rank <= 1 for rank in ranks) / len(ranks):5.1f}" if ranks else "    –"
