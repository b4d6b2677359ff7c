"""Live progress of a sweep: a table that follows the runs, or a line for each where there is no terminal."""

import time

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from askwell.cli.terminal import log
from askwell.specs import RunSpec
from askwell.sweep.engines import Ended, Event, Lost, Started
from askwell.sweep.plan import Plan
from askwell.sweep.task import RunDone

_RUNNING_SHOWN = 8


class SweepProgress:
    """Call it with each event of the sweep."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._began = plan, time.monotonic()
        self._running: dict[str, RunSpec] = {}
        self._done, self._failed, self._lost = len(plan.done), 0, 0
        self._best: dict[tuple[str, str], tuple[float, RunSpec]] = {}
        self._live = Live(get_renderable=self._table, console=log, refresh_per_second=2, transient=True)

    def __enter__(self) -> "SweepProgress":
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
            log.print(f"lost, tried again: {spec.label}: {event.reason}", markup=False)
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
