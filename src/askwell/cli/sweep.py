"""`askwell sweep` and `askwell demo`."""

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from askwell.cli.options import Data, Flag, Json, Seed, Several
from askwell.cli.terminal import bar, note, note_loading, print_json, say, show, show_document, show_section, stderr
from askwell.errors import BadFile, Failure
from askwell.files import need_writable_folder
from askwell.specs.run_spec import EngineName, RunSpec, read_sweep
from askwell.views.document import Code, Paragraph, table
from askwell.views.printable import counted

if TYPE_CHECKING:
    from askwell.runs.engines import Event
    from askwell.runs.plan import Plan
    from askwell.runs.store import FailedRun


class SweepBar:
    """The bar of a sweep, and a line for each of its runs. On an interrupt, it says how to continue."""

    def __init__(self, plan: "Plan", folder: Path) -> None:
        self._bar, self._folder, self._all = bar("runs"), folder, len(plan.runs)
        self._elsewhere: set[str] = set()
        self._ended, self._failed = len(plan.done), 0

    def __enter__(self) -> "SweepBar":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._bar.__exit__()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            note(f"interrupted: finished runs are in {self._folder}; the same command continues from there")

    def __call__(self, event: "Event") -> None:
        """Show an event of the sweep."""
        from askwell.runs.engines import Ended, Lost
        from askwell.runs.store import FailedRun
        from askwell.runs.worker import RunDone, RunElsewhere

        spec = event.task.spec
        if isinstance(event, Lost):
            stderr.print(f"lost, retrying: {spec.label}: {event.reason}", markup=False)
        elif isinstance(event, Ended) and isinstance(event.outcome, RunElsewhere):
            if spec.id not in self._elsewhere:
                stderr.print(f"another sweep is doing {spec.label}", markup=False)
            self._elsewhere.add(spec.id)
        elif isinstance(event, Ended) and isinstance(event.outcome, RunDone):
            self._ended += 1
            stderr.print(
                f"{self._ended:{len(str(self._all))}}/{self._all}  P@1 {event.outcome.p_at_1:5.1f}  "
                f"{event.outcome.seconds:6.1f} s  {spec.label}",
                markup=False,
            )
        elif isinstance(event, Ended) and isinstance(event.outcome, FailedRun):
            self._ended += 1
            self._failed += 1
            stderr.print(f"failed: {spec.label}: {event.outcome.message}", markup=False, style="red")
        self._bar(self._ended, self._all, f"{self._failed} failed" if self._failed else "")


def sweep(
    file: Path,
    /,
    *,
    store: Path | None = None,
    engine: EngineName | None = None,
    workers: int | None = None,
    address: str | None = None,
    dry_run: Flag = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Run a grid: LMs × relations × prompts × settings × seeds.

    Each run has a folder named by the hash of its spec, and finished runs are not repeated: if a sweep is interrupted
    or killed, the same command continues it. The exit code is 1 if some runs failed; the same command retries them.

    Args:
        file: The TOML file that describes the sweep.
        store: The folder for the runs, instead of the file's.
        engine: The engine for the runs, instead of the file's.
        workers: How many worker processes the pool has.
        address: Address of the Ray cluster, e.g. auto or HOST:6379.
        dry_run: Show the plan without running it.
    """
    from askwell.runs.store import new_or_open_store

    started = time.monotonic()
    given = {"store": store and str(store), "engine": engine, "workers": workers, "address": address}
    spec = read_sweep(file, {key: value for key, value in given.items() if value is not None})
    if spec.store is None:
        raise BadFile(file, "store is missing: name the folder for the runs there, or with --store")
    kept = new_or_open_store(Path(spec.store))
    need_writable_folder(kept.folder, "--store")
    note_loading()
    from askwell.runs.engines import check_engine, choose_engine, run_plan
    from askwell.runs.plan import plan_sweep

    check_engine(spec, file)
    plan = plan_sweep(spec, file, kept, data=data, note=note)
    for line in plan.without:
        note(f"left out: {line}")
    if dry_run:
        at_once = 1 if spec.engine == "ray" else choose_engine(spec).workers
        failed: list[FailedRun] = []
    else:
        chosen = choose_engine(spec)
        at_once = chosen.workers
        note(_in_short(plan, at_once))
        with SweepBar(plan, kept.folder) as live:
            failed = run_plan(plan, chosen, kept, live)
    seconds = time.monotonic() - started
    if json:
        print_json({"store": str(kept.folder), **plan.as_json(at_once, failed), "seconds": round(seconds, 1)})
    elif dry_run:
        _print_plan(plan, at_once)
    else:
        labels = {task.spec.id: task.spec.label for task in plan.runs}
        say(
            *(f"failed: {labels[failure.id]}: {failure.message}" for failure in failed),
            f"{len(plan.runs) - len(failed)} of {len(plan.runs)} runs are in {kept.folder}; {seconds:.0f} s. "
            f"Next: askwell runs {kept.folder} --sort P@1",
        )
    if failed:
        raise Failure(
            f"{len(failed)} of {len(plan.runs)} runs failed ({failed[0].message}); {kept.folder / 'failed'} says why, "
            "and the same command retries them"
        )


def _in_short(plan: "Plan", workers: int) -> str:
    if not plan.to_do:
        return f"{counted(len(plan.runs), 'run')}, all done"
    seconds = plan.estimate(workers)
    time_left = "duration unknown" if seconds is None else _in_words(seconds)
    at_once = f", {workers} at once" if workers > 1 else ""
    done = f"{counted(len(plan.runs), 'run')}, {len(plan.done)} of them done"
    return f"{done}; {len(plan.to_do)} to do{at_once}: {time_left}"


def _in_words(seconds: float) -> str:
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"


def _print_plan(plan: "Plan", workers: int) -> None:
    columns, rows = ("prompts", "relations", "runs", "done", "time left"), []
    groups: dict[tuple[str, str], list[RunSpec]] = {}
    for task in plan.runs:
        groups.setdefault((task.spec.asked_lm, task.spec.setting), []).append(task.spec)
    for names, specs in groups.items():
        left = [spec for spec in specs if spec.id not in plan.done]
        known = left and all(spec.id in plan.seconds for spec in left)
        time_left = _in_words(sum(plan.seconds[spec.id] for spec in left)) if known else "–"
        prompts, relations = {spec.prompts for spec in specs}, {spec.relation for spec in specs}
        counts = (len(prompts), len(relations), len(specs), len(specs) - len(left))
        rows.append((*names, *map(str, counts), time_left))
    show(table(("LM", "setting", *columns), rows, numbers=columns, title="The plan"))
    say(_in_short(plan, workers))


def demo(
    *,
    out: Path = Path("askwell-demo"),
    lm: str = "testbed2:bert",
    relations: Annotated[Several, Parameter(consume_multiple=True)] = None,
    seed: Seed = 0,
    quick: Flag = False,
    json: Json = False,
) -> None:
    """See it work: tune soft prompts on the testbed, compare them with hard ones, and write a report.

    The LMs of the second testbed were trained on a text that tells most facts of a small world, each in one or two of
    sixteen wordings, and withholds the rest, so the report can say what was elicited and what was guessed. The same
    command continues an interrupted demo.

    Args:
        out: The folder for the report and the runs behind it.
        lm: testbed2:bert or testbed2:causal.
        relations: Relations of the second testbed; default: four of them.
        quick: One relation and fewer methods and facts, in well under a minute.
    """
    need_writable_folder(out, "--out")
    from askwell.runs.engines import choose_engine, run_plan
    from askwell.runs.plan import plan_sweep
    from askwell.runs.store import new_or_open_store
    from askwell.views.demo_report import ELSEWHERE, demo_sweep, write_demo

    started = time.monotonic()
    sweep = demo_sweep(lm, relations, seed=seed, quick=quick)
    store = new_or_open_store(out)
    plan = plan_sweep(sweep, Path("askwell demo"), store)
    length = "well under a minute" if quick else "under a minute" if len(sweep.facts) == 1 else "a minute or two"
    to_do = "all done" if not plan.to_do else f"{len(plan.to_do)} to do, {length} on an idle machine"
    note(f"{counted(len(plan.runs), 'run')} on {lm}: {', '.join(sweep.facts)}; {to_do}")
    with SweepBar(plan, out) as live:
        failed = run_plan(plan, choose_engine(sweep), store, live)
    if failed:
        raise Failure(f"{len(failed)} of {len(plan.runs)} runs failed ({failed[0].message}); {out / 'failed'} says why")
    made = write_demo(sweep, plan, store)
    if json:
        print_json(made.as_json())
    else:
        show_document(made.study.found())
        show_section(ELSEWHERE.heading, *ELSEWHERE.blocks)
        show_section("The report", Paragraph(f" {made.report}"))
        show_section("What to try next", Code(_as_installed(made.next_steps)))
        note(f"\n{time.monotonic() - started:.0f} s in all.")


def _as_installed(steps: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return commands as they can be pasted, also where askwell is in an environment that is not on the PATH."""
    program = Path(sys.executable).with_name("askwell")
    if shutil.which("askwell") is not None or not program.exists():
        return steps
    near = program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program
    return tuple((command.replace("askwell", str(near), 1), what) for command, what in steps)
