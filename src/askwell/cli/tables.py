"""Tables on stdout. Names are never broken: where a terminal is too narrow for that, each row becomes a few lines."""

from collections.abc import Collection
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from askwell.cli.terminal import stdout

_NOTHING = ("", "–")


def plain_table(name: str, *headings: str, numbers: Collection[str] = (), **options: Any) -> Table:
    """A table without lines, with names in the first column and, under some headings, numbers."""
    table = Table(box=None, header_style="dim", pad_edge=False, **options)
    table.add_column(name, style="bold")
    for heading in headings:
        table.add_column(heading, justify="right" if heading in numbers else "left")
    return table


def print_table(table: Table, console: Console = stdout) -> None:
    """Prints a table without its empty columns: unbroken in a pipe; in a terminal, wrapped only between words.

    Where even that is too wide for the terminal, the rows are printed one below the other. The title is plain text:
    brackets in it, such as those of an x, are not markup.
    """
    table = _without_empty_columns(table)
    if isinstance(table.title, str):
        table.title = Text(table.title, style="table.title")
    columns = [_measured(column, table, console) for column in table.columns]
    between = _natural_width(table, console) - sum(widths.maximum for widths in columns)
    widest, narrowest = (sum(getattr(widths, end) for widths in columns) + between for end in ("maximum", "minimum"))
    if not console.is_terminal or widest <= console.width:
        for column, widths in zip(table.columns, columns, strict=True):
            column.width = widths.maximum
        _print_below_title(table, widest, console)
    elif narrowest <= console.width:
        room = console.width - narrowest
        for column, width in zip(table.columns, _shared_out(columns, room), strict=True):
            column.width = width
        _print_below_title(table, console.width, console)
    else:
        _print_rows(table, console)


def _without_empty_columns(table: Table) -> Table:
    says_something = [any(str(cell).strip() not in _NOTHING for cell in column.cells) for column in table.columns]
    kept = [column for column, says in zip(table.columns, says_something, strict=True) if says] or table.columns
    fresh = Table(
        *(column.copy() for column in kept), title=table.title, box=table.box, show_header=table.show_header,
        header_style=table.header_style, title_justify=table.title_justify, pad_edge=table.pad_edge,
    )  # fmt: skip
    for index, cells in enumerate(zip(*(column.cells for column in kept), strict=True)):
        fresh.add_row(*cells, end_section=table.rows[index].end_section)
    return fresh


def _texts(column: Column, table: Table, console: Console) -> list[Text]:
    shown = [*([column.header] if table.show_header else []), *column.cells]
    return [cell if isinstance(cell, Text) else console.render_str(str(cell)) for cell in shown]


def _measured(column: Column, table: Table, console: Console) -> Measurement:
    """The width at which lines are wrapped only between words, and that at which none is wrapped."""
    texts = [text.plain for text in _texts(column, table, console)]
    words = (cell_len(word) for text in texts for word in text.split())
    lines = (cell_len(line) for text in texts for line in text.splitlines())
    return Measurement(max(words, default=1), max(lines, default=1))


def _natural_width(table: Table, console: Console) -> int:
    return Measurement.get(console, console.options.update(width=1_000_000, max_width=1_000_000), table).maximum


def _shared_out(columns: list[Measurement], room: int) -> list[int]:
    """Widths that fill the available room, shared out in proportion to what each column lacks."""
    lacking = [widths.span for widths in columns]
    total = sum(lacking)
    return [widths.minimum + room * lack // total for widths, lack in zip(columns, lacking, strict=True)]


def _print_below_title(table: Table, width: int, console: Console) -> None:
    """Prints the table; a title that is wider than the table becomes a separate line above it."""
    if isinstance(table.title, Text) and table.title.cell_len > width:
        console.print(table.title, soft_wrap=True)
        table.title = None
    table.width = width
    console.print(table, crop=False)  # a pipe has no width, and gets whole lines


def _print_rows(table: Table, console: Console) -> None:
    """Prints each row as a heading, its first cell, and a line for each other cell that is not empty."""
    if table.title is not None:
        console.print(table.title, soft_wrap=True)
    headings = [console.render_str(str(column.header)) for column in table.columns]
    room = max(heading.cell_len for heading in headings[1:]) if headings[1:] else 0
    for row in zip(*(column.cells for column in table.columns), strict=True):
        first, *others = (cell if isinstance(cell, Text) else console.render_str(str(cell)) for cell in row)
        console.print(Text.assemble((first.plain, "bold")), soft_wrap=True)
        for heading, cell in zip(headings[1:], others, strict=True):
            if cell.plain.strip():
                named = f"  {heading.plain:{room}}  " if room else "  "
                console.print(Text.assemble((named, "dim"), cell), soft_wrap=True)
