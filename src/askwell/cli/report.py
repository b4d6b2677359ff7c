"""`askwell report` and `askwell export`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from askwell.cli.options import LM, Json, NotNegative, RunsPath, Where
from askwell.cli.terminal import note, print_json, show, show_section
from askwell.files import need_writable_file, need_writable_folder, write_whole
from askwell.views.printable import counted

if TYPE_CHECKING:
    from askwell.views.study import Study


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
    drawn: NotNegative = 4,
    json: Json = False,
) -> None:
    """Say what was found in some runs, with tables and figures, as Markdown, LaTeX, CSV and HTML.

    Where the paper printed a figure for the same LM, facts and prompts, it is shown beside ours.

    Args:
        out: The folder to write to; default: the folder report in the store.
        formats: One or more formats to write; default: all.
        drawn: How many tuned mixtures to draw as words; with 0, none is drawn and no LM is loaded.
    """
    from askwell.views.study import FORMATS, make_report

    folder = out or store / "report"
    need_writable_folder(folder, "--out")
    study, written = make_report(store, folder, where=where, formats=formats or FORMATS, drawn=drawn)
    for problem in study.problems:
        note(problem)
    if json:
        files = [str(path) for path in written]
        print_json({"store": str(store), "runs": len(study.runs), "files": files, **study.as_json()})
        return
    _print(study)
    note(f"{counted(len(study.runs), 'run')}; written to {folder}:")
    for path in written:
        note(f"  {path.relative_to(folder)}")


def _print(study: "Study") -> None:
    """Print what was found in each set, and the P@1 of its prompts."""
    from askwell.views.document import columns_alone
    from askwell.views.findings import finding_points

    for part in study.sets:
        heading = f"{part.fact_set}: what was found" if len(study.sets) > 1 else "What was found"
        show_section(heading, *finding_points(part.findings))
        for made in part.filled_tables[:1]:
            show(replace(columns_alone(made.table, "P@1"), title=f"{made.title}, P@1"))


def export(run: Path, /, *, out: Path = Path("run.html"), where: Where = None, lm: LM = None) -> None:
    """Write a run as one self-contained HTML file for a colleague: scores, trust, prompts, some answers.

    Args:
        run: A run, a folder of runs, or a store.
        out: The HTML file.
    """
    need_writable_file(out, "--out")
    from askwell.views.one_run import export_run

    write_whole(out, export_run(run, where, lm, note=note))
    note(f"written to {out}")
