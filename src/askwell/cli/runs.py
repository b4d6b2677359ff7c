"""`askwell runs`."""

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.markup import escape
from rich.table import Table

from askwell.cli.options import Json
from askwell.cli.terminal import counted, note, print_json, stdout
from askwell.errors import BadOption
from askwell.evaluation.metrics import METRICS
from askwell.files import to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from askwell.runs.query import RunTable
    from askwell.runs.store import FailedRun


def runs(
    store: Annotated[Path, Parameter(help="A sweep's store, a folder of runs, or one run.")],
    /,
    *,
    where: Annotated[
        str | None, Parameter(help="An SQL condition, e.g. \"lm = 'testbed:bert' and setting = 'soft' and P@1 > 40\".")
    ] = None,
    sort: Annotated[str | None, Parameter(help="The column to sort by; scores are sorted best first.")] = None,
    failed: Annotated[bool, Parameter(help="Show the runs that failed, and why.", negative="")] = False,
    csv: Annotated[bool, Parameter(help="Print all columns as CSV on stdout.", negative="")] = False,
    json: Json = False,
) -> None:
    """List runs, filtered and sorted.

    --json and --csv print all columns; one is the id of the run, whose folder is STORE/runs/ID.
    """
    from askwell.runs.folder import read_runs
    from askwell.runs.query import query_runs
    from askwell.runs.store import STORE, open_store

    if csv and json:
        raise BadOption("--csv and --json exclude each other")
    failures = open_store(store).failures() if (store / STORE).is_file() else []
    if failed:
        if where or sort or csv:
            raise BadOption("--failed lists all failed runs: use it by itself or with --json")
        if json:
            print_json(to_json(failures))
        else:
            _print_failures(failures)
        return
    found = query_runs(read_runs(store), where=where, sort=sort)
    if json:
        print_json(found.as_json())
    elif csv:
        _print_csv(found)
    else:
        _print_table(found, store, sort)
        if failures:
            note(f"{len(failures)} runs failed; --failed says why")


def _print_failures(failures: "Sequence[FailedRun]") -> None:

    for failure in failures:
        stdout.print(f"{failure.spec.label}: {failure.message}", markup=False, soft_wrap=True)


def _print_csv(found: "RunTable") -> None:

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(found.columns)
    writer.writerows(found.rows)


def _print_table(found: "RunTable", store: Path, sort: str | None) -> None:

    from askwell.runs.query import SHOWN

    table = Table(title=escape(f"{counted(len(found.rows), 'run')} of {store}"), box=None)
    labels = ("lm", "relation", "prompts", "setting", "control")
    rows = found.as_json()
    shown = list(SHOWN) + ([sort] if sort is not None and sort not in SHOWN else [])
    shown += ["control"] if any(run["control"] for run in rows) and "control" not in shown else []
    for name in shown:
        table.add_column(name, overflow="fold", no_wrap=name not in labels)  # ids and scores must not be broken up
    for run in rows:
        table.add_row(*(escape(_cell(name, run[name])) for name in shown))
    stdout.print(table)


def _cell(name: str, value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        decimals = {metric.key: metric.decimals for metric in METRICS.values()}
        return f"{value:.{decimals.get(name, 1)}f}"
    return str(value)[:8] if name == "id" else str(value)
