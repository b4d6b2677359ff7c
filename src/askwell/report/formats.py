"""Tables as Markdown, as LaTeX with the rules of booktabs, and their figures as CSV."""

import csv
import io
from collections.abc import Sequence

from askwell.report.page import Cell, Column, ColumnGroup, Table
from askwell.report.rows import FIELDS, StudyTable


def markdown_table(table: Table) -> str:
    """The table in the pipes of Markdown; the caption is a paragraph below it."""
    headings = [_heading(group, column) for group in table.groups for column in group.columns]
    lines = [
        _markdown_row([table.corner, *headings]),
        _markdown_row(["---", *("---:" if table.numeric else "---" for _ in headings)]),
    ]
    for row in table.rows:
        if row.begins:
            lines.append(_markdown_row([f"**{markdown_escaped(row.begins)}**", *("" for _ in headings)]))
        note = f" ({row.note})" if row.note else ""
        heading = markdown_escaped(row.heading + note)
        lines.append(_markdown_row([f"*{heading}*" if row.pale else heading, *map(_markdown_cell, row.cells)]))
    return "\n".join(lines) + f"\n\n{markdown_escaped(table.caption)}\n"


def markdown_escaped(text: str) -> str:
    """The text with the signs that Markdown would act on written as themselves."""
    for sign in "\\|*_`<>[]":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")


def _heading(group: ColumnGroup, column: Column) -> str:
    note = f" ({column.note})" if column.note else ""
    return markdown_escaped(f"{group.heading} {column.heading}{note}".strip())


def _markdown_cell(cell: Cell) -> str:
    text = markdown_escaped(cell.text)
    note = f" ({markdown_escaped(cell.note)})" if cell.note else ""
    return f"**{text}**{note}" if cell.strong else text + note


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


PREAMBLE = "% Needs \\usepackage{booktabs} and, before TeX Live 2018, \\usepackage[utf8]{inputenc}.\n"
_SIGNS = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
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
    """The table as a float with caption and label."""
    columns = " ".join(
        "r" * len(group.columns) if table.numeric else "l" * len(group.columns) for group in table.groups
    )
    lines = [
        r"\begin{table}[tp]",
        r"\centering\footnotesize\setlength{\tabcolsep}{4pt}",
        rf"\begin{{tabular}}{{l {columns}}}",
        r"\toprule",
    ]
    if table.is_grouped:
        lines += _group_headings(table)
    lines += [_latex_row([latex_escaped(table.corner), *(latex_escaped(column.heading) for column in table.columns)])]
    if any(column.note for column in table.columns):
        lines.append(
            _latex_row(["", *(rf"\scriptsize {latex_escaped(column.note)}".strip() for column in table.columns)])
        )
    lines.append(r"\midrule")
    for number, row in enumerate(table.rows):
        if row.begins:
            lines += [r"\addlinespace"] if number else []
            lines.append(rf"\multicolumn{{{1 + len(table.columns)}}}{{l}}{{\emph{{{latex_escaped(row.begins)}}}}} \\")
        note = f" ({latex_escaped(row.note)})" if row.note else ""
        heading = latex_escaped(row.heading) + note
        lines.append(_latex_row([rf"\quad \emph{{{heading}}}" if row.pale else heading, *map(_latex_cell, row.cells)]))
    lines += [
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{latex_escaped(table.caption)}}}",
        rf"\label{{tab:{label(name)}}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def latex_escaped(text: str) -> str:
    """The text with every sign that LaTeX would act on, or has in mathematics only, written as itself."""
    return "".join(_SIGNS.get(char, char) for char in text)


def label(name: str) -> str:
    """A name as it can stand in \\label."""
    return "".join(char if char.isascii() and (char.isalnum() or char in "-.") else "-" for char in name)


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
    note = rf" {{\scriptsize {latex_escaped(cell.note)}}}" if cell.note else ""
    return (rf"\textbf{{{text}}}" if cell.strong else text) + note


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def csv_table(study: StudyTable) -> str:
    """The figures with all their digits; a field is empty where there is no figure."""
    written = io.StringIO()
    writer = csv.DictWriter(written, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(study.records)
    return written.getvalue()
