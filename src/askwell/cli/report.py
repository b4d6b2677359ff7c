"""`askwell report` and `askwell export`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from askwell.cli.options import LM, Json, NotNegative, RunsPath, Where
from askwell.cli.terminal import note, print_json, show
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
    paper: Path | None = None,
    where: Where = None,
    drawn: NotNegative = 4,
    json: Json = False,
) -> None:
    """Make the paper's tables and figures from runs, as Markdown, LaTeX, CSV and HTML.

    Args:
        out: The folder to write to; default: the folder report in the store.
        formats: One or more formats to write; default: all.
        paper: The paper's figures as JSON, to show beside ours; default: the data folder's paper_tables.json.
        drawn: How many tuned mixtures to draw as words; with 0, none is drawn and no LM is loaded.
    """
    from askwell.views.paper_figures import read_paper
    from askwell.views.study import FORMATS, make_report

    folder = out or store / "report"
    need_writable_folder(folder, "--out")
    made = make_report(store, folder, where=where, formats=formats or FORMATS, paper=read_paper(paper), drawn=drawn)
    for problem in made.study.problems:
        note(problem)
    if json:
        print_json(made.as_json())
        return
    _print(made.study)
    note(f"{counted(len(made.runs), 'run')}; written to {folder}:")
    for path in made.files:
        note(f"  {path.relative_to(folder)}")


def _print(study: "Study") -> None:
    """Prints the first table of each set, P@1 only."""
    from askwell.views.document import MISSING, Column, ColumnGroup, Table

    for study_table in (made for part in study.sets for made in part.tables[:1]):
        groups = study_table.table.groups
        rows = []
        for row in study_table.table.rows:
            cells = iter(row.cells)
            by_group = [{column.heading: next(cells) for column in group.columns} for group in groups]
            rows.append(replace(row, cells=tuple(of.get("P@1", MISSING) for of in by_group)))
        columns = tuple(Column(group.heading) for group in groups)
        show(Table("", "", (ColumnGroup("", columns),), tuple(rows), title=f"{study_table.title}, P@1"))


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
