"""`askwell runs`."""

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from askwell.cli.options import Flag, Json, RunsPath
from askwell.cli.terminal import note, print_json, say, show
from askwell.errors import BadOption
from askwell.files import to_json
from askwell.views.printable import counted, for_csv

if TYPE_CHECKING:
    from askwell.runs.folder import Runs


def runs(
    store: RunsPath,
    /,
    *,
    where: str | None = None,
    sort: str | None = None,
    failed: Flag = False,
    csv: Flag = False,
    json: Json = False,
) -> None:
    """List runs, filtered and sorted.

    --json and --csv print all columns. One of them is the run's id: its folder is STORE/runs/ID.

    Args:
        where: An SQL condition, e.g. "lm = 'testbed:bert' and setting = 'soft' and P@1 > 40".
        sort: The column to sort by; scores are sorted best first.
        failed: Show the runs that failed, and why.
        csv: Print all columns as CSV on stdout.
    """
    if csv and json:
        raise BadOption("--csv and --json cannot be combined")
    if failed and (where or sort or csv):
        raise BadOption("--failed lists all failed runs: use it by itself or with --json")
    from askwell.runs.folder import load_runs
    from askwell.runs.query import query_runs
    from askwell.runs.store import STORE, open_store

    failures = open_store(store).failures() if (store / STORE).is_file() else []
    if failed:
        if json:
            print_json(to_json(failures))
        else:
            say(*(f"{failure.spec.label}: {failure.message}" for failure in failures))
        return
    found = query_runs(load_runs(store), where=where, sort=sort)
    if json:
        print_json(found.records())
    elif csv:
        _print_csv(found)
    else:
        _print_table(found, store, sort)
        if failures:
            note(f"{counted(len(failures), 'run')} failed; --failed says why")


def _print_csv(found: "Runs") -> None:
    from askwell.runs.query import COLUMNS

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([for_csv(value) for value in row.values()] for row in found.records())


def _print_table(found: "Runs", store: Path, sort: str | None) -> None:
    from askwell.runs.query import SHOWN
    from askwell.views.run_list import run_table

    rows = found.records()
    controls = ["control"] if any(run["control"] for run in rows) else []
    shown = list(dict.fromkeys([*SHOWN, *([sort] if sort else []), *controls]))
    show(run_table(rows, shown, f"{counted(len(rows), 'run')} of {store}"))
