"""Tables as LaTeX, with the rules of the package booktabs."""

from collections.abc import Sequence

from askwell.report.table import Cell, Table

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
    lines += [_row([escaped(table.corner), *(escaped(column.heading) for column in table.columns)])]
    if any(column.note for column in table.columns):
        lines.append(_row(["", *(rf"\scriptsize {escaped(column.note)}".strip() for column in table.columns)]))
    lines.append(r"\midrule")
    for number, row in enumerate(table.rows):
        if row.begins:
            lines += [r"\addlinespace"] if number else []
            lines.append(rf"\multicolumn{{{1 + len(table.columns)}}}{{l}}{{\emph{{{escaped(row.begins)}}}}} \\")
        note = f" ({escaped(row.note)})" if row.note else ""
        heading = escaped(row.heading) + note
        lines.append(_row([rf"\quad \emph{{{heading}}}" if row.pale else heading, *map(_cell, row.cells)]))
    lines += [
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{escaped(table.caption)}}}",
        rf"\label{{tab:{label(name)}}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """The text with every sign that LaTeX would act on, or has in mathematics only, written as itself."""
    return "".join(_SIGNS.get(char, char) for char in text)


def label(name: str) -> str:
    """A name as it can stand in \\label."""
    return "".join(char if char.isascii() and (char.isalnum() or char in "-.") else "-" for char in name)


def _group_headings(table: Table) -> list[str]:
    headings, rules, at = [], [], 2
    for group in table.groups:
        width = len(group.columns)
        headings.append(rf"\multicolumn{{{width}}}{{c}}{{{escaped(group.heading)}}}")
        if group.heading:
            rules.append(rf"\cmidrule(lr){{{at}-{at + width - 1}}}")
        at += width
    return [_row(["", *headings]), " ".join(rules)]


def _cell(cell: Cell) -> str:
    text = escaped(cell.text)
    note = rf" {{\scriptsize {escaped(cell.note)}}}" if cell.note else ""
    return (rf"\textbf{{{text}}}" if cell.strong else text) + note


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
