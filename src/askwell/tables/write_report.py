"""Writes a report into a folder."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

from askwell.report.page import Page, render_page
from askwell.tables.comma_separated import csv_table
from askwell.tables.document import report_latex, report_markdown
from askwell.tables.study_of import Study
from askwell.write import write_whole

Format = Literal["markdown", "latex", "csv", "html"]
FORMATS: tuple[Format, ...] = ("markdown", "latex", "csv", "html")
_WRITTEN = ".written-by-askwell"
"""The names of the files of the report that is there."""


def write_report(study: Study, page: Page, folder: Path, formats: Collection[Format] = FORMATS) -> list[Path]:
    """Writes the formats, and all figures as SVG and PDF; gives the paths of what was written."""
    contents: list[tuple[str, str | bytes]] = []
    if "markdown" in formats:
        contents.append(("report.md", report_markdown(study)))
    if "latex" in formats:
        contents.append(("report.tex", report_latex(study)))
    if "html" in formats:
        contents.append(("report.html", render_page(page)))
    if "csv" in formats:
        contents += [(f"tables/{table.name}.csv", csv_table(table)) for table in study.tables]
    for figure in study.figures:
        contents += [(f"figures/{figure.name}.svg", figure.svg), (f"figures/{figure.name}.pdf", figure.pdf)]
    return _written(contents, folder)


def _written(contents: Sequence[tuple[str, str | bytes]], folder: Path) -> list[Path]:
    for name, content in contents:
        write_whole(folder / name, content)
    names = [name for name, _ in contents]
    _remove_what_was_there(folder, {*names})
    write_whole(folder / _WRITTEN, "".join(f"{name}\n" for name in sorted(names)))
    return [folder / name for name in names]


def _remove_what_was_there(folder: Path, but: Collection[str]) -> None:
    """Removes what an earlier report wrote, and nothing else: a table of it beside those of today would mislead."""
    if (folder / _WRITTEN).is_file():
        for name in (folder / _WRITTEN).read_text(encoding="utf-8").splitlines():
            if name not in but and not Path(name).is_absolute() and ".." not in Path(name).parts:
                (folder / name).unlink(missing_ok=True)
