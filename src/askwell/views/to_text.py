"""Documents in a terminal, and as plain text; objects that print themselves so; and a bar for work that takes time.

Names are never broken: where a terminal is too narrow for a table, each row becomes a few lines.
"""

import io
import time
from collections.abc import Iterable
from importlib.util import find_spec
from types import TracebackType
from typing import Self

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column as RichColumn
from rich.table import Table as RichTable
from rich.text import Text

from askwell.views.document import Block, Cell, Code, Document, Figure, Paragraph, Points, Table, without_empty_columns

_MARKS = {"right": "✓ ", "wrong": "✗ "}


def plain_text(document: Document) -> str:
    """Return the document as lines of text: its title, and indented below it its tables and sentences."""
    written = io.StringIO()
    # A width that nothing reaches: the lines of a pipe are not broken. In a notebook, rich would also show the text.
    console = Console(file=written, width=10_000, color_system=None, force_terminal=False, force_jupyter=False)
    print_blocks(document.blocks, console)
    lines = (f"  {line}".rstrip() for line in written.getvalue().splitlines())
    return "\n".join([document.title, *lines])


class ShowsItself:
    """Prints as its summary, and shows it as a table in a notebook."""

    def summary(self) -> Document:
        """Return what is worth seeing at a glance."""
        raise NotImplementedError  # abstract: each class that is used has its own

    def __repr__(self) -> str:
        return plain_text(self.summary())

    def _repr_html_(self) -> str:
        from askwell.views.to_html import notebook_html  # takes longer to import than most objects to make

        return notebook_html(self.summary())


def print_document(document: Document, console: Console) -> None:
    """Print the title, the lead and the sections, each under its heading."""
    if document.title:
        console.print(document.title, style="bold", markup=False)
    if document.lead:
        console.print(document.lead, markup=False, soft_wrap=True)
    for section in document.sections:
        if section.heading:
            console.print(f"\n{section.heading}", style="bold", markup=False)
        print_blocks(section.blocks, console)


def print_blocks(blocks: Iterable[Block], console: Console) -> None:
    """Print blocks one after the other. Sentences are not wrapped in pipes; figures are left out."""
    for block in blocks:
        match block:
            case Table():
                print_table(block, console)
            case Paragraph():
                console.print(block.text, markup=False, soft_wrap=True)
            case Points():
                if block.heading:
                    console.print(block.heading, style="bold", markup=False)
                grid = RichTable.grid(padding=(0, 1))
                for item in block.items:
                    grid.add_row(" •", Text(item))
                console.print(grid)
            case Code():
                for command, purpose in block.lines:
                    console.print(f" {command}", markup=False, soft_wrap=True)
                    console.print(f"     {purpose}", style="dim", markup=False)
            case Figure():
                pass


def print_table(table: Table, console: Console) -> None:
    """Print a table without its empty columns: unbroken in a pipe; in a terminal, wrapped only between words.

    Where even that is too wide for the terminal, the rows are printed one below the other.
    """
    if table.title:
        console.print(table.title, style="italic", markup=False, soft_wrap=True)
    drawn = rich_table(table)
    columns = [_measured(column, drawn) for column in drawn.columns]
    between = 2 * (len(columns) - 1)  # a space on either side
    widest, narrowest = (sum(getattr(widths, end) for widths in columns) + between for end in ("maximum", "minimum"))
    if not console.is_terminal or widest <= console.width:
        _print_at(drawn, [widths.maximum for widths in columns], widest, console)
    elif narrowest <= console.width:
        _print_at(drawn, _shared_out(columns, console.width - narrowest), console.width, console)
    else:
        _print_rows(drawn, console)
    if table.more:
        console.print(f"… and {table.more} more")
    if table.caption:
        console.print(table.caption, style="dim", markup=False)


def rich_table(shown: Table) -> RichTable:
    """Return the table as rich draws it: without lines, and without columns that say nothing."""
    shown = without_empty_columns(shown)
    headings = [
        ": ".join(filter(None, (group.heading, column.heading))) for group in shown.groups for column in group.columns
    ]
    in_groups = any(row.begins for row in shown.rows)
    drawn = RichTable(box=None, header_style="dim", pad_edge=False, show_header=any([shown.corner, *headings]))
    drawn.add_column(Text(shown.corner), justify="right" if shown.numbered else "left")
    for column, heading in zip(shown.columns, headings, strict=True):
        justify = "right" if column.number else "left"
        drawn.add_column(Text(heading), justify=justify, style="dim" if column.pale else "")
    for row in shown.rows:
        if row.begins:
            drawn.add_row(Text(row.begins, "bold"), *([""] * len(headings)))
        first = Text(f"  {row.heading}" if in_groups else row.heading, "" if in_groups or row.pale else "bold")
        first.append(f" ({row.note})" if row.note else "", "dim")
        drawn.add_row(first, *map(_cell, row.cells), style="dim" if row.pale else "")
    return drawn


def _cell(cell: Cell) -> Text:
    style = "bold" if cell.strong else "blue" if cell.mark == "bar" else ""
    text = Text.assemble(_MARKS.get(cell.mark, ""), (cell.text, style))
    return text.append(f" {cell.note}", "dim") if cell.note else text


def _measured(column: RichColumn, table: RichTable) -> Measurement:
    """Return the width at which lines are wrapped only between words, and that at which none is wrapped."""
    texts = [*([str(column.header)] if table.show_header else []), *map(str, column.cells)]
    words = (cell_len(word) for text in texts for word in text.split())
    lines = (cell_len(line) for text in texts for line in text.splitlines())
    return Measurement(max(words, default=1), max(lines, default=1))


def _shared_out(columns: list[Measurement], room: int) -> list[int]:
    """Return widths that fill the available room, shared out in proportion to what each column lacks."""
    lacking = [widths.span for widths in columns]
    total = sum(lacking)
    return [widths.minimum + room * lack // total for widths, lack in zip(columns, lacking, strict=True)]


def _print_at(table: RichTable, widths: list[int], width: int, console: Console) -> None:
    for column, own in zip(table.columns, widths, strict=True):
        column.width = own
    table.width = width
    console.print(table, crop=False)  # a pipe has no width, and gets whole lines


def _print_rows(table: RichTable, console: Console) -> None:
    """Print each row as a heading, its first cell, and a line for each other cell that is not empty."""
    headings = [str(column.header) for column in table.columns]
    room = max(map(cell_len, headings[1:]), default=0)
    for row in zip(*(column.cells for column in table.columns), strict=True):
        console.print(Text(str(row[0]), "bold"), soft_wrap=True)
        for heading, cell in zip(headings[1:], row[1:], strict=True):
            if isinstance(cell, Text) and cell.plain.strip():
                named = f"  {heading}{' ' * (room - cell_len(heading))}  " if room else "  "
                console.print(Text.assemble((named, "dim"), cell), soft_wrap=True)


_SECONDS_BEFORE = 2.0


class Bar:
    """A progress bar; call it with the amount done, the total, a text to show beside it, and the step if that is new.

    It appears once the work has taken `after` seconds, and disappears at the end. With `wanted=False`, or where nobody
    would see it, nothing is drawn; but a line is printed every `line_every` seconds, if that is given.
    """

    def __init__(
        self,
        what: str,
        wanted: bool | None = None,
        console: Console | None = None,
        after: float = _SECONDS_BEFORE,
        line_every: float | None = None,
    ) -> None:
        # Without ipywidgets, rich would warn in every cell of a notebook.
        console = console or Console(stderr=True, force_jupyter=None if find_spec("ipywidgets") else False)
        self._is_seen = wanted is not False and (console.is_terminal or console.is_jupyter)
        name, text = (TextColumn(f"{{task.{part}}}", markup=False) for part in ("description", "fields[text]"))
        self._bar = Progress(
            name, BarColumn(), MofNCompleteColumn(), text, TimeRemainingColumn(), console=console, transient=True
        )
        self._task = self._bar.add_task(what, total=None, text="")
        self._what: str | None = what
        self._after, self._began = after, time.monotonic()
        self._console, self._line_every, self._last_line = console, None if self._is_seen else line_every, self._began

    def __enter__(self) -> Self:
        self._start_if_due()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._bar.live.is_started:
            self._bar.stop()

    def __call__(self, done: int, total: int, text: str = "", what: str | None = None) -> None:
        """Move the bar; where another step begins, it starts over."""
        self._start_if_due()
        if what not in (None, self._what):
            self._what = what
            self._bar.reset(self._task, description=what)
        self._bar.update(self._task, completed=done, total=total, text=text)
        if self._line_every is not None and time.monotonic() - self._last_line >= self._line_every:
            self._last_line = time.monotonic()
            self._console.print(f"{self._what}: {done} of {total}  {text}".rstrip(), markup=False)

    def _start_if_due(self) -> None:
        is_due = time.monotonic() - self._began >= self._after
        if self._is_seen and is_due and not self._bar.live.is_started:
            self._bar.start()
