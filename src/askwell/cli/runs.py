"""`askwell runs`, `compare`, `report` and `export`: what is done with finished runs."""

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from askwell.cli.options import LM, CandidatesFile, Data, Flag, Json, NotNegative, Reading, RunsPath, Where
from askwell.cli.terminal import note as tell
from askwell.cli.terminal import print_json, say, show, show_document
from askwell.errors import BadOption
from askwell.evaluation.metrics import METRICS
from askwell.files import need_writable_file, need_writable_folder, to_json, write_whole
from askwell.views.printable import counted, for_csv

if TYPE_CHECKING:
    from askwell.runs.folder import Runs

    MetricName = str
else:
    MetricName = Literal[tuple(METRICS)]


def runs(
    store: RunsPath,
    /,
    *,
    where: str | None = None,
    sort: str | None = None,
    failed: Flag = False,
    name: str | None = None,
    note: str | None = None,
    csv: Flag = False,
    json: Json = False,
) -> None:
    """List runs, filtered and sorted; or name one of them, or note something about it.

    The first column is the run's folder; in a store, that is STORE/runs/ID, and the start of the ID is shown. --json
    and --csv print all columns. `askwell runs my-run --name "first try"` names a run.

    Args:
        where: An SQL condition, e.g. "lm = 'testbed:bert' and setting = 'soft' and P@1 > 40".
        sort: The column to sort by; scores are sorted best first.
        name: A name for the one run that is chosen; an empty one removes it.
        note: A note about it.
        failed: Show the runs that failed, and why.
        csv: Print all columns as CSV on stdout.
    """
    if csv and json:
        raise BadOption("--csv and --json cannot be combined")
    if failed and (where or sort or csv):
        raise BadOption("--failed lists all failed runs: use it by itself or with --json")
    from askwell.runs.folder import load_runs, write_remarks
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
    if name is not None or note is not None:
        if len(found) != 1:
            raise BadOption(
                f"--name and --note are for one run, and here are {len(found)}: give its folder, or choose it with "
                "--where \"id = '…'\""
            )
        write_remarks(found[0].folder, name=name, note=note)
        found = query_runs(load_runs(store), where=where, sort=sort)
    if json:
        print_json(found.records())
    elif csv:
        _print_csv(found)
    else:
        _print_table(found, store, sort)
        if failures:
            tell(f"{counted(len(failures), 'run')} failed; --failed says why")


def _print_csv(found: "Runs") -> None:
    from askwell.runs.query import COLUMNS

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([for_csv(value) for value in row.values()] for row in found.records())


def _print_table(found: "Runs", store: Path, sort: str | None) -> None:
    from askwell.runs.folder import shown_columns
    from askwell.views.compared import run_table
    from askwell.views.study_rows import prompts_text

    rows = [{**row, "prompts": prompts_text(run.record.spec)} for run, row in zip(found, found.records(), strict=True)]
    show(run_table(rows, shown_columns(rows, sort), f"{counted(len(rows), 'run')} of {store}"))


def compare(
    a: Path,
    b: Path,
    /,
    *,
    metric: MetricName = "P@1",
    unit: Literal["fact", "x", "y"] = "fact",
    where_a: Where = None,
    where_b: str | None = None,
    seed: NotNegative = 0,
    changed: NotNegative = 10,
    json: Json = False,
) -> None:
    """Compare two runs on the facts that both answered: difference, interval, significance, what changed.

    A folder of runs counts as one run: its relations are taken together, its seeds paired with the same seeds of the
    other. The output names the answers that each ranks among. To compare two settings of one sweep:
    `askwell compare STORE STORE --where-a "setting = 'soft'" --where-b "setting = 'init'"`.

    Args:
        a: A run's folder, a folder of runs, a sweep's store, or a Parquet file of facts.
        b: The same for the run to compare it with.
        metric: The score to compare.
        unit: What counts as one independent unit: a fact, all facts of an x, or all facts of a y.
        where_b: The same for the other side.
        seed: Seed of the random sign flips and of the bootstrap.
        changed: How many of the changed facts to show.
    """
    from askwell.runs.query import compare_runs
    from askwell.views.compared import comparison_blocks, who_is_better
    from askwell.views.document import Paragraph

    compared = compare_runs(a, b, where_a=where_a, where_b=where_b, metric=metric, unit=unit, seed=seed)
    if json:
        print_json(compared.as_json(changed))
    else:
        show(Paragraph(who_is_better(compared.found)), *comparison_blocks(compared, changed))


def report(
    store: RunsPath,
    /,
    *,
    out: Path | None = None,
    formats: Annotated[
        list[Literal["markdown", "latex", "csv", "html"]] | None,
        Parameter(name="--format", consume_multiple=True, negative=""),
    ] = None,
    where: Where = None,
    drawn: NotNegative = 0,
    json: Json = False,
) -> None:
    """Say what was found in some runs, with tables and figures, as Markdown, LaTeX, CSV and HTML.

    Where the paper printed a figure for the same LM, facts and prompts, it is shown beside ours.

    Args:
        out: The folder to write to; default: the folder report in the store.
        formats: One or more formats to write; default: all.
        drawn: How many tuned mixtures to draw as words, for which their LMs are loaded.
    """
    from askwell.views.study import FORMATS, make_report

    folder = out or store / "report"
    need_writable_folder(folder, "--out")
    study, written = make_report(store, folder, where=where, formats=formats or FORMATS, drawn=drawn)
    for problem in study.problems:
        tell(problem)
    if json:
        files = [str(path) for path in written]
        print_json({"store": str(store), "runs": len(study.runs), "files": files, **study.as_json()})
        return
    show_document(study.found())
    tell(f"{counted(len(study.runs), 'run')}; written to {folder}:")
    for path in written:
        tell(f"  {path.relative_to(folder)}")


def export(
    source: str,
    /,
    *,
    to: Literal["html", "inspect", "lm-eval"] = "html",
    out: Path | None = None,
    where: Where = None,
    drawn: Flag = False,
    lm: LM = None,
    prompt: str | None = None,
    candidates: CandidatesFile = None,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    data: Data = None,
) -> None:
    """Write a run for a colleague or for Inspect, or a relation as a task of the lm-evaluation-harness.

    html is one self-contained file with scores, trust, prompts and some answers. inspect writes an eval log of each
    run, with a sample for each test fact, which `inspect view` shows. lm-eval writes a relation's test facts as a
    multiple-choice task; `python -m askwell.tools.lm_eval --model askwell` asks them of a mixture.

    Args:
        source: A run, a folder of runs, or a store; for lm-eval, a relation, as --facts names it elsewhere.
        to: What to write.
        out: The HTML file (default: named after the run), the folder of logs (logs), or the folder of the task (task).
        drawn: For html: also draw the tuned prompts as words, for which the LM is loaded; so does --lm.
        prompt: For lm-eval: ask every model with this sentence up to [Y], instead of naming x alone.
    """
    if to == "lm-eval":
        if where is not None or lm is not None:
            raise BadOption("--to lm-eval writes a relation, not a run: leave out --where and --lm")
        _export_task(source, out or Path("task"), prompt, candidates, reading, data)
        return
    if prompt is not None or candidates is not None or reading != Reading() or data is not None:
        raise BadOption(
            f"--to {to} writes a run, which has its own facts: leave out --prompt, --candidates, --data and how facts "
            "are read"
        )
    if not Path(source).exists():
        raise BadOption(f"{source}: there is no such folder; --to {to} writes runs, and --to lm-eval a relation")
    if to == "inspect":
        if lm is not None:
            raise BadOption("--to inspect asks no LM: leave out --lm")
        _export_logs(source, out or Path("logs"), where)
        return
    file = out or Path(f"{Path(source).resolve().name}.html")
    need_writable_file(file, "--out")
    from askwell.views.one_run import export_run

    write_whole(file, export_run(Path(source), where, lm, drawn=drawn or lm is not None, note=tell))
    tell(f"written to {file}")


def _export_logs(source: str, folder: Path, where: str | None) -> None:
    from askwell.runs.query import select_runs
    from askwell.tools.inspect_log import write_inspect_log

    need_writable_folder(folder, "--out")
    runs = select_runs(source, where)
    for run in runs:
        tell(f"written to {write_inspect_log(run, folder)}")
    tell(f"see {'them' if len(runs) > 1 else 'it'} with: inspect view --log-dir {folder}")


def _export_task(
    source: str, folder: Path, prompt: str | None, candidates: Path | None, reading: Reading, data: Path | None
) -> None:
    from askwell.answers.candidates import load_candidates
    from askwell.data.names import load_relation
    from askwell.data.templates import parse_template
    from askwell.runs.record import RECORD
    from askwell.tools.lm_eval_task import write_task

    need_writable_folder(folder, "--out")
    if (Path(source) / RECORD).is_file():
        raise BadOption(f"{source} is a run, and --to lm-eval writes a relation: name one as --facts does elsewhere")
    relation = load_relation(source, data=data, **reading.named)
    task = write_task(
        relation,
        folder,
        template=None if prompt is None else parse_template(prompt),
        candidates=None if candidates is None else load_candidates(candidates),
    )
    tell(f"the task {task} is in {folder}; ask it with: {harness_command(task, folder)}")


def harness_command(task: str, folder: Path) -> str:
    """Return the command that asks a mixture the facts of an exported task."""
    start = "python -m askwell.tools.lm_eval --model askwell --model_args mixture=RUN"
    return f"{start} --include_path {folder} --tasks {task}"
