"""A report as one HTML page that needs no other file, script or font: its blocks, tables and templates.

All text is escaped; only drawings are markup.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from askwell.report.drawing import Chart, css_variables, variable
from askwell.report.words import visible


@dataclass(frozen=True)
class Column:
    """A column of cells."""

    heading: str
    note: str = ""
    """Small, below the heading: e.g. how many facts."""
    pale: bool = False


@dataclass(frozen=True)
class ColumnGroup:
    """Columns under a common heading."""

    heading: str
    columns: tuple[Column, ...]
    note: str = ""


@dataclass(frozen=True)
class Cell:
    """What stands in a cell. A missing figure is shown as missing."""

    text: str
    strong: bool = False
    mark: Literal["", "right", "wrong"] = ""
    note: str = ""


MISSING = Cell("–")


@dataclass(frozen=True)
class Row:
    """A row with its heading; `begins` is the heading of the group of rows that it is the first of."""

    heading: str
    cells: tuple[Cell, ...]
    begins: str = ""
    note: str = ""
    pale: bool = False


@dataclass(frozen=True)
class Table:
    """A table; every row has a cell for every column."""

    caption: str
    corner: str
    """The heading of the rows' headings."""
    groups: tuple[ColumnGroup, ...]
    rows: tuple[Row, ...]
    numeric: bool = True

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
        """Whether the columns stand under common headings."""
        return any(group.heading for group in self.groups)


def percentages(shares: Sequence[float | None], *, strong: Sequence[bool]) -> tuple[Cell, ...]:
    """Shares in per cent as cells, with one decimal."""
    return tuple(
        MISSING if share is None else Cell(f"{share:.1f}", strong=is_strong)
        for share, is_strong in zip(shares, strong, strict=True)
    )


@dataclass(frozen=True)
class Paragraph:
    """Running text."""

    text: str
    pale: bool = False


@dataclass(frozen=True)
class Points:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Code:
    """Commands, each with what it does."""

    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Drawing:
    """A chart; no two of a page have the same name."""

    name: str
    chart: Chart
    heading: str = ""
    note: str = ""


@dataclass(frozen=True)
class Key:
    """An entry of a figure's legend."""

    label: str
    role: str
    """Of the palette."""
    shape: str
    """dot, diamond, or line-1 to line-4."""

    @classmethod
    def of_curve(cls, label: str, number: int) -> "Key":
        """The entry of a curve of a chart, counted from 0."""
        return cls(label, f"series-{number + 1}", f"line-{number + 1}")


@dataclass(frozen=True)
class FigureBlock:
    """Drawings with one caption: side by side where there is room, or one below the other and scrolled if wide."""

    drawings: tuple[Drawing, ...]
    caption: str
    keys: tuple[Key, ...] = ()
    wide: bool = False
    folded: str = ""
    """If given, the figure is folded away behind these words."""


Block = Paragraph | Points | Code | FigureBlock | Table


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    heading: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """A whole report."""

    title: str
    lead: str = ""
    about: tuple[tuple[str, str], ...] = ()
    """What the report is of: names and values, below the lead."""
    sections: tuple[Section, ...] = field(default=())
    foot: str = ""


def render_page(page: Page, template: str = "page.html.jinja", **filling: Any) -> str:
    """The page as HTML, the same for the same page; another template of ours needs its own filling."""
    return (
        _templates()
        .get_template(template)
        .render(
            page=page,
            anchors=_anchors(page.sections),
            light=css_variables(dark=False),
            dark=css_variables(dark=True),
            **filling,
        )
    )


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("askwell.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"kind": _kind, "drawn": _drawn, "unbroken": _unbroken, "variable": variable}
    environment.filters["visible"] = visible
    return environment


def _kind(block: Block) -> str:
    return type(block).__name__


def _drawn(drawing: Drawing) -> Markup:
    return Markup(drawing.chart.svg_in_page(drawing.name))  # our own, whose text is escaped where it is drawn


def _unbroken(text: str) -> str:
    """The text with spaces that no line ends at, where a figure belongs to its sign."""
    return re.sub(r" (?=%)|(?<=\bp) (?=[<=])|(?<=[<=]) (?=\d)", "\u00a0", text)


def _anchors(sections: Sequence[Section]) -> list[str]:
    return [f"section-{number}" for number in range(1, len(sections) + 1)]
