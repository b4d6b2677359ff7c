"""Does what a plan leaves to do, and keeps what comes of it."""

from collections.abc import Callable

from askwell.store.folder import Store
from askwell.sweep.engines import Ended, Engine, Event
from askwell.sweep.plan import Plan
from askwell.sweep.run_one import do_run
from askwell.sweep.task import RunDone, RunFailed


def go(plan: Plan, engine: Engine, store: Store, tell: Callable[[Event], None]) -> list[RunFailed]:
    """Does all runs that are not done; gives those that could not be, which are noted in the store, too."""
    failed: list[RunFailed] = []
    store.make()
    store.clean(but=frozenset(task.spec.id for task in plan.to_do))

    def keep(event: Event) -> None:
        if isinstance(event, Ended):
            outcome = event.outcome
            if isinstance(outcome, RunFailed):
                failed.append(outcome)
                store.note_failure(event.task.spec, outcome.message, outcome.traceback)
            elif isinstance(outcome, RunDone) and outcome.files is not None:
                store.put(outcome.id, outcome.files)
        tell(event)

    if plan.to_do:
        engine.run(plan.to_do, do_run, keep)
    store.clean()
    return failed
