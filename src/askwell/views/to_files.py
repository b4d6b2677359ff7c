"""Sections as Markdown, tables as LaTeX with the rules of booktabs, and records as CSV and as frames.

The libraries of frames are no dependencies; they are imported when they are needed."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from askwell.errors import BadOption
from askwell.views.document import Block, Cell, Code, Figure, Paragraph, Points, Section, Table, headed
from askwell.views.printable import for_csv, printable


def markdown_section(section: Section) -> str:
    """Return the section under a heading; its drawings are those in the folder figures."""
    level = "###" if section.within else "##"
    return "\n".join([f"{level} {markdown_escaped(section.heading)}\n", *map(_markdown_block, section.blocks)])


def markdown_sections(sections: Iterable[Section]) -> str:
    """Return sections one after the other, each chapter under its heading."""
    parts = []
    for section, begins in headed(sections, lambda section: section.within):
        parts += [f"## {markdown_escaped(begins)}\n"] if begins else []
        parts.append(markdown_section(section))
    return "\n".join(parts)


_RULES = {False: "---", True: "---:"}
"""The line below a heading of texts, and of numbers."""


def markdown_table(table: Table) -> str:
    """Return the table in the pipes of Markdown; the caption is a paragraph below it."""
    headings = [
        _noted(": ".join(filter(None, (group.heading, column.heading))), column.note)
        for group in table.groups
        for column in group.columns
    ]
    lines = [
        _markdown_row([table.corner, *headings]),
        _markdown_row([_RULES[table.numbered], *(_RULES[column.number] for column in table.columns)]),
    ]
    for row in table.rows:
        if row.begins:
            lines.append(_markdown_row([f"**{markdown_escaped(row.begins)}**", *("" for _ in headings)]))
        heading = _noted(row.heading, row.note)
        lines.append(_markdown_row([f"*{heading}*" if row.pale else heading, *map(_markdown_cell, row.cells)]))
    return "\n".join(lines) + f"\n\n{markdown_escaped(table.caption)}\n"


def markdown_escaped(text: str) -> str:
    """Return the text with Markdown's special characters escaped."""
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", printable(text)).replace("\n", " ")


def _markdown_block(block: Block) -> str:
    match block:
        case Table():
            return markdown_table(block)
        case Paragraph():
            return f"{markdown_escaped(block.text)}\n"
        case Points():
            heading = f"### {markdown_escaped(block.heading)}\n\n" if block.heading else ""
            return heading + "".join(f"- {markdown_escaped(item)}\n" for item in block.items)
        case Code():
            return "".join(
                f"- `{printable(command)}`: {markdown_escaped(purpose)}\n" for command, purpose in block.lines
            )
        case Figure():
            lines = []
            for drawing in block.drawings:
                lines += [f"### {markdown_escaped(drawing.heading)}\n"] if drawing.heading else []
                lines.append(f"![{markdown_escaped(drawing.chart.title)}](figures/{drawing.name}.svg)\n")
                lines += [f"{markdown_escaped(drawing.note)}\n"] if drawing.note else []
            return "\n".join([*lines, f"{markdown_escaped(block.caption)}\n"])


def _noted(text: str, note: str) -> str:
    return markdown_escaped(f"{text} ({note})" if note else text)


def _markdown_cell(cell: Cell) -> str:
    text = markdown_escaped(cell.text)
    note = f" ({markdown_escaped(cell.note)})" if cell.note else ""
    return f"**{text}**{note}" if cell.strong else text + note


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


PREAMBLE = "% Needs \\usepackage{booktabs} and, before TeX Live 2018, \\usepackage[utf8]{inputenc}.\n"
_SIGNS = {sign: f"\\{sign}" for sign in "&%$#_{}"}
_SIGNS |= {sign: f"${sign}$" for sign in "<>|"}
_SIGNS |= {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "→": r"$\rightarrow$",
    "±": r"$\pm$",
    "−": r"$-$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "–": "--",
    "…": r"\ldots{}",
    "“": "``",
    "”": "''",
    "\n": " ",
}


def latex_table(table: Table, name: str) -> str:
    """Return the table as a float with caption and label."""
    columns = " ".join(("r" if table.numeric else "l") * len(group.columns) for group in table.groups)
    lines = [
        r"\begin{table}[tp]",
        r"\centering\footnotesize\setlength{\tabcolsep}{4pt}",
        rf"\begin{{tabular}}{{l {columns}}}",
        r"\toprule",
        *(_group_headings(table) if table.is_grouped else []),
        _latex_row(map(latex_escaped, [table.corner, *(column.heading for column in table.columns)])),
    ]
    if any(column.note for column in table.columns):
        lines.append(_latex_row(["", *(_small(column.note) for column in table.columns)]))
    lines.append(r"\midrule")
    for number, row in enumerate(table.rows):
        if row.begins:
            lines += [r"\addlinespace"] if number else []
            lines.append(rf"\multicolumn{{{1 + len(table.columns)}}}{{l}}{{\emph{{{latex_escaped(row.begins)}}}}} \\")
        heading = latex_escaped(f"{row.heading} ({row.note})" if row.note else row.heading)
        heading = rf"\quad \emph{{{heading}}}" if row.pale else heading
        lines.append(_latex_row([heading, *map(_latex_cell, row.cells)]))
    lines += [
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{latex_escaped(table.caption)}}}",
        rf"\label{{tab:{label(name)}}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def latex_escaped(text: str) -> str:
    """Return the text with LaTeX's special characters escaped, and mathematical signs in math mode."""
    return printable(text).translate(str.maketrans(_SIGNS))


def label(name: str) -> str:
    """Return a name that can be used in \\label."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", name)


def _group_headings(table: Table) -> list[str]:
    headings, rules, at = [], [], 2
    for group in table.groups:
        width = len(group.columns)
        headings.append(rf"\multicolumn{{{width}}}{{c}}{{{latex_escaped(group.heading)}}}")
        if group.heading:
            rules.append(rf"\cmidrule(lr){{{at}-{at + width - 1}}}")
        at += width
    return [_latex_row(["", *headings]), " ".join(rules)]


def _latex_cell(cell: Cell) -> str:
    text = latex_escaped(cell.text)
    note = f" {{{_small(cell.note)}}}" if cell.note else ""
    return (rf"\textbf{{{text}}}" if cell.strong else text) + note


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _small(text: str) -> str:
    return rf"\scriptsize {latex_escaped(text)}".strip()


def csv_table(fields: Sequence[str], records: Iterable[Mapping[str, object]]) -> str:
    """Return records with all their digits; a field without a figure is empty."""
    written = io.StringIO()
    writer = csv.DictWriter(written, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows({field: for_csv(value) for field, value in record.items()} for record in records)
    return written.getvalue()


Records = Sequence[Mapping[str, Any]]
"""Rows with the same keys."""


class AsFrame:
    """Turns its records into a pandas frame or an Arrow table."""

    def records(self) -> Records:
        """Return its rows, as dictionaries with the same keys."""
        raise NotImplementedError  # abstract: each class that is used has its own

    def to_pandas(self) -> Any:
        """Return its records as a pandas.DataFrame."""
        return pandas_frame(self.records())

    def to_arrow(self) -> Any:
        """Return its records as a pyarrow.Table, which polars, DuckDB and datasets read as well."""
        return _need("pyarrow", "to_arrow").Table.from_pylist([dict(record) for record in self.records()])


def pandas_frame(records: Records) -> Any:
    """Return the records as a pandas.DataFrame."""
    return _need("pandas", "to_pandas").DataFrame([dict(record) for record in records])


def _need(package: str, method: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise BadOption(f"{method}() needs {package}, which is not installed: pip install {package}") from None
