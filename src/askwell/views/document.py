"""What can be shown, whatever it is about: a document of sections, tables, sentences, commands and figures.

Terminal, notebook, page and files render the same document (`to_text`, `to_html`, `to_files`). All of it is plain text
that the renderers escape; only charts are drawings.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, Literal, TypeVar

from askwell.views.printable import NONE

if TYPE_CHECKING:
    from askwell.views.drawing import Chart

T = TypeVar("T")


@dataclass(frozen=True)
class Column:
    """A column of cells."""

    heading: str
    note: str = ""
    """Small, below the heading: e.g. how many facts."""
    pale: bool = False
    number: bool = True
    """Whether its cells are numbers, which are flush right."""


@dataclass(frozen=True)
class ColumnGroup:
    """Columns under a common heading."""

    heading: str
    columns: tuple[Column, ...]
    note: str = ""


@dataclass(frozen=True)
class Cell:
    """The content of a cell."""

    text: str
    strong: bool = False
    mark: Literal["", "right", "wrong", "bar"] = ""
    """Whether it is a right or a wrong answer, or a bar made of blocks."""
    note: str = ""


MISSING = Cell(NONE)


@dataclass(frozen=True)
class Row:
    """A row with its heading; `begins` is the heading of the group of rows that it is the first of."""

    heading: str
    cells: tuple[Cell, ...]
    begins: str = ""
    note: str = ""
    pale: bool = False
    link: str = ""
    """Where its heading leads, on a page."""


@dataclass(frozen=True)
class Table:
    """A table; every row has a cell for every column."""

    caption: str
    """What the table shows, below it."""
    corner: str
    """The heading of the rows' headings."""
    groups: tuple[ColumnGroup, ...]
    rows: tuple[Row, ...]
    title: str = ""
    """A line above it."""
    numbered: bool = False
    """Whether the rows' headings are numbers."""
    more: int = 0
    """How many more rows there are than are shown."""
    folded: str = ""
    """If given, the table is folded away behind these words."""
    stacked: bool = False
    """Whether a narrow screen shows each row as lines of its own, which name the columns."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(f"row {row.heading!r} has {len(row.cells)} cells for {len(self.columns)} columns")

    @property
    def columns(self) -> list[Column]:
        """All columns, from left to right."""
        return [column for group in self.groups for column in group.columns]

    @property
    def is_grouped(self) -> bool:
        """Whether the columns have common headings."""
        return any(group.heading for group in self.groups)

    @property
    def numeric(self) -> bool:
        """Whether all columns hold numbers."""
        return all(column.number for column in self.columns)


def without_empty_columns(shown: Table) -> Table:
    """Return the table without columns in which no row has anything to show."""
    if not shown.rows:
        return shown
    full = [any(row.cells[at].text.strip() not in ("", NONE) for row in shown.rows) for at in range(len(shown.columns))]
    kept = iter(full)
    groups = (replace(group, columns=tuple(one for one in group.columns if next(kept))) for group in shown.groups)
    rows = (replace(row, cells=tuple(compress(row.cells, full))) for row in shown.rows)
    return replace(shown, groups=tuple(group for group in groups if group.columns), rows=tuple(rows))


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Cell]],
    *,
    numbers: Collection[str] = (),
    title: str = "",
    caption: str = "",
    more: int = 0,
) -> Table:
    """Return a table of plain rows, whose first cells are their headings; `numbers` are headings of numbers."""
    corner, *others = headings
    columns = tuple(Column(heading, number=heading in numbers) for heading in others)
    built = []
    for first, *cells in rows:
        heading = first.text if isinstance(first, Cell) else first
        built.append(Row(heading, tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in cells)))
    return Table(caption, corner, (ColumnGroup("", columns),), tuple(built), title, corner in numbers, more)


@dataclass(frozen=True)
class Paragraph:
    """Running text."""

    text: str


@dataclass(frozen=True)
class Points:
    """A list of sentences, under a heading if it has one."""

    items: tuple[str, ...]
    heading: str = ""


@dataclass(frozen=True)
class Code:
    """Commands, each with what it does."""

    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Drawing:
    """A chart; no two on a page have the same name."""

    name: str
    chart: "Chart"
    heading: str = ""
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """Drawings with one caption: side by side where there is room and no wider than the page; or, if wide since they
    are mostly text, framed, one below the other, and scrolled rather than made too small to read."""

    drawings: tuple[Drawing, ...]
    caption: str
    wide: bool = False


Block = Paragraph | Points | Code | Figure | Table


@dataclass(frozen=True)
class Section:
    """A heading, which may be empty, and what comes below it."""

    heading: str
    blocks: tuple[Block, ...]
    within: str = ""
    """The chapter that it is a part of; contents name chapters, and sections that are in none."""


@dataclass(frozen=True)
class Document:
    """A whole page, or what an object shows of itself."""

    title: str
    lead: str = ""
    about: tuple[tuple[str, str], ...] = ()
    """What it is about: names and values, below the lead."""
    sections: tuple[Section, ...] = ()
    foot: str = ""

    @property
    def blocks(self) -> list[Block]:
        """The content of all sections, in order."""
        return [block for section in self.sections for block in section.blocks]


_MOST_ROWS = 10


def overview(
    heading: str,
    headings: Sequence[str] = (),
    rows: Sequence[Sequence[str]] = (),
    numbers: Collection[str] = (),
    notes: Iterable[str] = (),
) -> Document:
    """Return what to see of an object at a glance: at most ten rows of a table, and notes below it."""
    hidden = max(0, len(rows) - _MOST_ROWS)
    shown = [table(headings, rows[:_MOST_ROWS], numbers=numbers, more=hidden)] if rows else []
    return Document(heading, sections=(Section("", (*shown, *map(Paragraph, notes))),))


def headed(rows: Iterable[T], heading: Callable[[T], str]) -> Iterator[tuple[T, str]]:
    """Yield each row with its heading, given only at the first row that has it."""
    seen = set()
    for row in rows:
        yield row, "" if heading(row) in seen else heading(row)
        seen.add(heading(row))


def one_decimal(figure: float | None, *, strong: bool = False) -> Cell:
    """Return a figure with one decimal, or a dash."""
    return MISSING if figure is None else Cell(f"{figure:.1f}", strong)
