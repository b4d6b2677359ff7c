"""Tables of a report: groups of columns, rows in groups, and a caption that says what the figures are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


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
