"""`askwell demo`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from askwell.cli.options import Flag, Json, Seed, Several
from askwell.cli.terminal import note, print_json, show_section
from askwell.errors import Failure
from askwell.files import need_writable_folder
from askwell.views.document import Code, Paragraph, Points
from askwell.views.printable import counted

if TYPE_CHECKING:
    from askwell.views.demo_report import Demo


def demo(
    *,
    out: Path = Path("askwell-demo"),
    lm: str = "testbed:bert",
    relations: Annotated[Several, Parameter(consume_multiple=True)] = None,
    seed: Seed = 0,
    quick: Flag = False,
    json: Json = False,
) -> None:
    """See it work: tune soft prompts on the testbed, compare them with hard ones, and write a report.

    The testbed's LMs were trained on a text that tells most facts of a small world and withholds the rest, so the
    report can say what was elicited and what was guessed. The same command continues an interrupted demo.

    Args:
        out: The folder for the report and the runs behind it.
        lm: An LM of the testbed.
        relations: Relations of the testbed; default: four of them.
        quick: One relation and fewer methods and facts, in well under a minute.
    """
    need_writable_folder(out, "--out")
    from askwell.cli.progress import SweepBar
    from askwell.runs.engines import choose_engine, run_plan
    from askwell.runs.plan import plan_sweep
    from askwell.runs.store import new_or_open_store
    from askwell.views.demo_report import demo_sweep, write_demo

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
        _print_summary(made, time.monotonic() - started)


def _print_summary(made: "Demo", seconds: float) -> None:
    from askwell.views.findings_shown import relation_tables

    tables = [table for part in made.study.sets for table in relation_tables(part.findings)]
    show_section("What was found", Points(tuple(made.findings)), *tables)
    show_section("The report", Paragraph(f" {made.report}"))
    show_section("What to try next", Code(made.next_steps))
    note(f"\n{seconds:.0f} s in all.")
