"""`askwell report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich.markup import escape
from rich.table import Table

from askwell.cli.options import Json, NotNegative, Store, Where
from askwell.cli.tables import print_table
from askwell.cli.terminal import note, print_json
from askwell.display.summary import counted
from askwell.files import need_writable_folder

if TYPE_CHECKING:
    from askwell.report.study import Study


def report(
    store: Store,
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
        out: Where to write; default: the folder report in the store.
        formats: What to write, one or more of these; default: all.
        paper: The paper's figures as JSON, to show beside ours; default: the data folder's paper_tables.json.
        drawn: How many tuned mixtures to draw in words; 0 draws none, and then no LM is loaded.
    """
    from askwell.report.paper import read_paper
    from askwell.report.study import FORMATS, report_page, study_of, write_report
    from askwell.runs.query import select_runs

    folder = out or store / "report"
    need_writable_folder(folder, "--out")
    of_paper = read_paper(paper)
    runs = select_runs(store, where)
    study = study_of(runs, of_paper, drawn=drawn)
    written = write_report(study, report_page(store.resolve().name, runs, study), folder, formats or FORMATS)
    for problem in study.problems:
        note(problem)
    if json:
        document = {"store": str(store), "runs": len(runs), "files": [str(path) for path in written], **study.as_json()}
        print_json(document)
        return
    _print(study)
    note(f"{counted(len(runs), 'run')}; written to {folder}:")
    for path in written:
        note(f"  {path.relative_to(folder)}")


def _print(study: "Study") -> None:
    """Prints the first table of each set, P@1 only."""
    from askwell.report.page import MISSING

    for shown in (table for part in study.sets for table in part.tables[:1]):
        groups = shown.table.groups
        title = escape(f"{shown.title}, P@1")
        table = Table("", *(escape(group.heading) for group in groups), title=title, box=None)
        for row in shown.table.rows:
            if row.begins:
                table.add_row(f"[bold]{escape(row.begins)}[/bold]")
            cells = iter(row.cells)
            by_group = [{column.heading: next(cells) for column in group.columns} for group in groups]
            scores = (of.get("P@1", MISSING).text for of in by_group)
            table.add_row(f"  {escape(row.heading)}", *map(escape, scores))
        print_table(table)
