"""A probe under way: its plan, its store, and its runs in short."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from askwell.errors import BadOption
from askwell.lms.machine import available_threads
from askwell.runs.engines import Ended, Event, InProcess, Pool, run_plan
from askwell.runs.plan import Plan, plan_sweep, work_of
from askwell.runs.probe_card import Card, card_of
from askwell.runs.probe_plan import (
    PROBE,
    SEEDS,
    ProbeSpec,
    Steps,
    read_probe,
    relations_in_order,
    steps_within,
    sweep_of,
    sweep_toml,
    write_probe,
)
from askwell.runs.probe_results import RESULTS, ProbedRun, in_short, read_results, write_results
from askwell.runs.store import Store, new_or_open_store
from askwell.runs.worker import RunTask
from askwell.specs.run_spec import SweepSpec
from askwell.views.printable import counted


@dataclass
class Probe:
    """A probe and its folder."""

    spec: ProbeSpec
    folder: Path
    steps: Steps
    workers: int
    data: Path | None
    results: dict[str, ProbedRun] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """The store of its runs."""
        return new_or_open_store(self.folder)

    @property
    def rates(self) -> dict[str, float]:
        """The seconds per unit of work of each LM: as measured in the first relation's runs, or roughly."""
        return self.steps.roughly() | self.spec.seconds_per_unit

    @property
    def within(self) -> int:
        """How many steps are planned."""
        rates = self.rates
        if {task.spec.lm for task in self.steps.plan.runs} - rates.keys():
            return len(self.steps.steps)  # every run that could be measured is done
        return steps_within(self.steps.seconds(rates), self.spec.minutes, self.workers)

    @property
    def planned(self) -> tuple[tuple[str, ...], int]:
        """The relations of the plan, in order, and with how many seeds they are asked."""
        steps, relations = self.within, len(self.steps.relations)
        return self.steps.relations[:steps], 1 + max(0, steps - relations)

    @property
    def to_do(self) -> tuple[RunTask, ...]:
        """The planned runs that are not done."""
        planned = (task for step in self.steps.steps[: self.within] for task in step)
        return tuple(task for task in planned if task.spec.id not in self.results)

    @property
    def seconds_left(self) -> float:
        """About how long the rest will take."""
        rates = self.rates
        return (
            sum(rates.get(task.spec.lm, 0.0) * work_of(task.spec, task.relation) for task in self.to_do) / self.workers
        )

    @property
    def reach(self) -> str:
        """How many relations are planned, and how many seeds of the tuned settings."""
        relations, seeds = self.planned
        of = counted(len(self.steps.relations), "relation")
        return f"{len(relations)} of {of} with {seeds} of {len(SEEDS)} seeds"

    def in_short(self) -> str:
        """Say how much is planned, and about how long it will take."""
        return (
            f"{self.reach}, at most {counted(self.spec.test_facts, 'test fact')} each: "
            f"{counted(len(self.to_do), 'run')} to do, about {max(1, round(self.seconds_left / 60))} min"
        )

    def toml(self) -> str:
        """Return the plan as a file for `askwell sweep`."""
        return sweep_toml(self._sweep(), f"The plan of `askwell probe`: {self.in_short()}.")

    def _sweep(self) -> SweepSpec:
        relations, seeds = self.planned
        spec, kinds = self.spec, {task.spec.mixture.answers for task in self.steps.plan.runs}
        if len(kinds) == 1:  # some of the relations alone might not need answers of any length
            spec = spec.model_copy(update={"answers": kinds.pop()})
        return sweep_of(spec, self.steps.sources_of(relations), seeds, self.folder)

    def run(self, follow: Callable[[Plan, Path], Any], note: Callable[[str], None]) -> int:
        """Do the runs of the first relation, measure, and do as many others as the time allows; return how many failed.

        `follow` makes what shows the progress of a plan.
        """
        failed = 0
        first = [task for task in self.steps.steps[0] if task.spec.id not in self.results]
        if first:
            failed += self._do(first, follow)
        self._measure()
        self._write()
        if first and self.to_do:
            note(f"measured: {self.in_short()}")
        rest = [task for task in self.to_do if task not in self.steps.steps[0]]
        return failed + (self._do(rest, follow) if rest else 0)

    def _do(self, tasks: list[RunTask], follow: Callable[[Plan, Path], Any]) -> int:
        plan = Plan(tuple(tasks), frozenset(), {}, ())
        engine = InProcess() if self.workers == 1 else Pool(min(self.workers, len(tasks)))
        try:
            with follow(plan, self.folder) as live:

                def keep(event: Event) -> None:
                    if isinstance(event, Ended):
                        self.keep_results()
                    live(event)

                return len(run_plan(plan, engine, self.store, keep))
        finally:
            self.keep_results()

    def keep_results(self) -> None:
        """Keep in short what the store has and the file of results has not."""
        store = self.store
        new = store.done() - self.results.keys()
        for task in self.steps.plan.runs:
            if task.spec.id in new:
                self.results[task.spec.id] = in_short(store.read(task.spec.id), task, self.data)
        if new:
            write_results(self.results, self.folder / RESULTS)

    def _measure(self) -> None:
        """Set what a unit of work costs, once: later calls plan with the same figures."""
        lacking = {task.spec.lm for task in self.steps.plan.runs} - self.spec.seconds_per_unit.keys()
        measured = self.steps.measured({run.id: run.seconds for run in self.results.values()})
        new = {lm: rate for lm, rate in measured.items() if lm in lacking}
        self.spec = self.spec.model_copy(update={"seconds_per_unit": self.spec.seconds_per_unit | new})

    def _write(self) -> None:
        write_probe(self.spec, self._sweep(), self.folder)

    def card(self) -> Card:
        """Count what is known so far."""
        lms = dict.fromkeys(task.spec.lm for task in self.steps.plan.runs)
        return card_of(self.results.values(), self.planned[0], tuple(lms), self.spec.settings)


def open_probe(
    spec: ProbeSpec, folder: Path, *, data: Path | None, workers: int | None, note: Callable[[str], None] | None
) -> Probe:
    """Plan a probe, or go on with the one in a folder, if it asks for the same."""
    earlier = read_probe(folder)
    if earlier is not None and (differs := spec.differs_from(earlier)):
        raise BadOption(
            f"`out` {folder} holds another probe, which differs in {', '.join(differs)} ({folder / PROBE}): name "
            "another folder",
            out="--out",
        )
    if earlier is not None:
        spec = spec.model_copy(update={"seconds_per_unit": earlier.seconds_per_unit})
    order = relations_in_order(spec, data)
    whole = sweep_of(spec, order, len(SEEDS), folder)
    store = new_or_open_store(folder)
    plan = plan_sweep(whole, Path("askwell probe"), store, data=data, note=note)
    made = Probe(spec, folder, Steps(plan, order), workers or available_threads(), data, read_results(folder / RESULTS))
    made.keep_results()
    return made
