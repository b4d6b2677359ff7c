"""A report as one HTML page that needs no other file, script or font: its blocks, tables and templates.

All text is escaped; only drawings are markup.
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from askwell.display.printable import printable
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
    """The content of a cell."""

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

    def _repr_html_(self) -> str:
        return _templates().get_template("notebook_table.html.jinja").render(table=self)

    @property
    def columns(self) -> list[Column]:
        """All columns, from left to right."""
        return [column for group in self.groups for column in group.columns]

    @property
    def is_grouped(self) -> bool:
        """Whether the columns have common headings."""
        return any(group.heading for group in self.groups)


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
    chart: Chart
    heading: str = ""
    note: str = ""


@dataclass(frozen=True)
class Key:
    """An entry of a figure's legend."""

    label: str
    role: str
    """A role of the palette."""
    shape: Literal["dot", "diamond"]


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
    """A heading and what comes below it."""

    heading: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """A whole report."""

    title: str
    lead: str = ""
    about: tuple[tuple[str, str], ...] = ()
    """What the report is about: names and values, below the lead."""
    sections: tuple[Section, ...] = ()
    foot: str = ""


def render_page(page: Page, template: str = "page.html.jinja", **filling: Any) -> str:
    """The page as HTML, the same for the same page; `filling` is what templates other than the default need."""
    colours = {"light": css_variables(dark=False), "dark": css_variables(dark=True)}
    return _templates().get_template(template).render(page=page, **colours, **filling)


def read_texts(name: str) -> dict[str, Any]:
    """A TOML file of this room."""
    return tomllib.loads(files("askwell.report").joinpath(name).read_text(encoding="utf-8"))


def sentences(template: str, **filling: Any) -> list[str]:
    """The lines of a text whose template chooses what to say about some figures."""
    text = _templates().get_template(template).render(**filling)
    return [line for line in text.splitlines() if line.strip()]


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("askwell.report"),
        autoescape=select_autoescape(("html.jinja",)),
        undefined=StrictUndefined,
        finalize=printable_text,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "drawn": lambda drawing: Markup(drawing.chart.svg_in_page(drawing.name)),  # its text is escaped already
        "listed": _listed,
        "one": lambda figure: f"{figure:.1f}",
        "p_value": lambda p: "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}",
        "percent": lambda share: f"{100 * share:.0f} %",
        "unbroken": _unbroken,
        "variable": variable,
        "visible": visible,
    }
    return environment


def printable_text(value: Any) -> Any:
    """What a template prints; texts come from files that others wrote."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _listed(words: Sequence[str], before_last: str = "and") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {before_last} {words[-1]}"


def _unbroken(text: str) -> str:
    """The text with non-breaking spaces between figures and their signs."""
    return re.sub(r" (?=%)|(?<=\bp) (?=[<=])|(?<=[<=]) (?=\d)", "\u00a0", text)
