"""Tables as Markdown."""

from collections.abc import Sequence

from askwell.report.table import Cell, Column, ColumnGroup, Table


def markdown_table(table: Table) -> str:
    """The table in the pipes of Markdown; the caption is a paragraph below it."""
    headings = [_heading(group, column) for group in table.groups for column in group.columns]
    lines = [_row([table.corner, *headings]), _row(["---", *("---:" if table.numeric else "---" for _ in headings)])]
    for row in table.rows:
        if row.begins:
            lines.append(_row([f"**{escaped(row.begins)}**", *("" for _ in headings)]))
        note = f" ({row.note})" if row.note else ""
        heading = escaped(row.heading + note)
        lines.append(_row([f"*{heading}*" if row.pale else heading, *map(_cell, row.cells)]))
    return "\n".join(lines) + f"\n\n{escaped(table.caption)}\n"


def escaped(text: str) -> str:
    """The text with the signs that Markdown would act on written as themselves."""
    for sign in "\\|*_`<>[]":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")


def _heading(group: ColumnGroup, column: Column) -> str:
    note = f" ({column.note})" if column.note else ""
    return escaped(f"{group.heading} {column.heading}{note}".strip())


def _cell(cell: Cell) -> str:
    text = escaped(cell.text)
    note = f" ({escaped(cell.note)})" if cell.note else ""
    return f"**{text}**{note}" if cell.strong else text + note


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
