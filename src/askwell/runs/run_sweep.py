"""Executes the remaining runs of a plan, and stores their results."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from askwell.errors import BadFile
from askwell.lms.machine import available_threads
from askwell.runs.engines import Ended, Engine, Event, InProcess, Pool, PutOff, RayCluster, is_installed
from askwell.runs.plan import Plan
from askwell.runs.store import Store
from askwell.runs.worker import RunDone, RunElsewhere, RunFailed, RunTask, do_run, done_before
from askwell.specs.sweep_spec import SweepSpec

_SECONDS_BETWEEN_LOOKS = 0.5


def run_plan(plan: Plan, engine: Engine, store: Store, tell: Callable[[Event], None]) -> list[RunFailed]:
    """Execute all runs that are not yet done; return those that failed, which are also recorded in the store.

    Runs that another sweep has under way are left to it, and executed here only if it ends without completing them.
    """
    failed: list[RunFailed] = []
    put_off: list[RunTask] = []
    store = store.make()
    store.clean(but=frozenset(task.spec.id for task in plan.to_do))

    def keep(event: Event) -> None:
        if isinstance(event, Ended):
            outcome = event.outcome
            if isinstance(outcome, RunFailed) and (there := done_before(event.task)) is not None:
                event = Ended(event.task, there)
            elif isinstance(outcome, RunElsewhere):
                put_off.append(event.task)
                event = PutOff(event.task)
            elif isinstance(outcome, RunFailed):
                failed.append(outcome)
                store.note_failure(event.task.spec, outcome.message, outcome.traceback)
            elif isinstance(outcome, RunDone) and outcome.files is not None:
                store.put(outcome.id, outcome.files)
        tell(event)

    to_do: Sequence[RunTask] = [replace(task, store=store) for task in plan.to_do]
    while to_do:
        engine.run(to_do, do_run, keep)
        to_do = _left_over(put_off, store, tell)
        put_off.clear()
    store.clean()
    return failed


def _left_over(tasks: Sequence[RunTask], store: Store, tell: Callable[[Event], None]) -> list[RunTask]:
    """Wait for other sweeps to finish with these runs; return those that they have not completed."""
    left: list[RunTask] = []
    for task in tasks:
        while store.is_under_way(task.spec.id):
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        there = done_before(task)
        if there is None:
            left.append(task)
        else:
            tell(Ended(task, there))
    return left


@dataclass(frozen=True)
class SweepResult:
    """A plan and its outcome; for a dry run, the plan alone."""

    store: Path
    plan: Plan
    workers: int
    """How many runs are executed at once."""
    failed: tuple[RunFailed, ...] = ()
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the plan with its estimates, which runs failed and why, and how long it took, as plain JSON."""
        plan = self.plan.as_json(self.workers, self.failed)
        return {"store": str(self.store), **plan, "seconds": round(self.seconds, 1)}


def check_engine(sweep: SweepSpec, file: Path) -> None:
    """Refuse an unsuitable engine before any work begins; nothing is started."""
    if sweep.engine == "ray" and not is_installed():
        raise BadFile(file, "engine: Ray is not installed here; get it with: pip install 'askwell[cluster]'")
    if sweep.engine != "pool" and sweep.workers is not None:
        raise BadFile(file, f"workers: only the engine pool has workers; the engine is {sweep.engine}")
    if sweep.engine != "ray":
        for key in ("address", "cpus_per_run", "gpus_per_run"):
            if getattr(sweep, key) is not None:
                raise BadFile(file, f"{key}: only the engine ray uses it; the engine is {sweep.engine}")


def choose_engine(sweep: SweepSpec) -> Engine:
    """Return the engine, ready to run."""
    if sweep.engine == "in-process":
        return InProcess()
    if sweep.engine == "pool":
        return Pool(sweep.workers or max(1, available_threads() // sweep.threads))
    gpus = sweep.gpus_per_run if sweep.gpus_per_run is not None else float(sweep.device == "cuda")
    return RayCluster(sweep.address, sweep.cpus_per_run or float(sweep.threads), gpus)
