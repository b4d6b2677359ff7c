"""Reads facts, and x's to ask about, from files."""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from askwell.data.facts import Fact, collector_paused
from askwell.data.records import COLUMN_FILES, listed, read_columns, read_lines
from askwell.errors import BadFile, BadOption

SUFFIXES = tuple(COLUMN_FILES)
# LAMA's labels come before sub and obj: its Google-RE lines have both, and there sub and obj are Freebase ids.
_KEYS = (("x", "y"), ("sub_label", "obj_label"), ("sub", "obj"))
_X_KEYS = ("x", "sub_label", "sub")


class Columns(NamedTuple):
    """The columns that hold x and y; None for the usual ones."""

    x: str | None = None
    y: str | None = None

    def found(self, there: Collection[str]) -> tuple[str, str]:
        """The names of both columns among those of a file; ValueError if one is missing."""
        for option, name in (("--x", self.x), ("--y", self.y)):
            if name is not None and name not in there:
                raise ValueError(f"{option} {name}: there is no such column; found {listed(there)}")
        for x, y in _KEYS:
            if (self.x or x) in there and (self.y or y) in there:
                return self.x or x, self.y or y
        expected = ", or ".join(f"{x!r} and {y!r}" for x, y in _KEYS)
        raise ValueError(
            f"expected {expected} as keys or in the header; found {listed(there)}. "
            "Other columns are named with --x and --y"
        )


USUAL = Columns()


def parse_facts(path: Path, columns: Columns = USUAL) -> list[Fact]:
    """The facts of a .jsonl, .csv or .tsv file, in the file's order, repeated ones kept."""
    if path.suffix.lower() not in SUFFIXES:
        raise BadFile(path, f"unknown ending {path.suffix!r}: a file of facts ends in {', '.join(SUFFIXES)}")
    with collector_paused():
        facts = [Fact(x, y) for _, (x, y) in read_columns(path, columns.found)]
    if not facts:
        raise BadFile(path, "the file holds no facts")
    return facts


def read_xs(path: Path, column: str | None) -> list[str]:
    """One x for each line of text, or for each row of a table, in the file's order."""

    def choose(there: Collection[str]) -> tuple[str]:
        for name in [column] if column else _X_KEYS:
            if name in there:
                return (name,)
        wanted = f"no column {column!r}" if column else f"none of {', '.join(_X_KEYS)}; name a column with --column"
        raise ValueError(f"{wanted}; there are: {', '.join(there) or 'none'}")

    if path.suffix.lower() in SUFFIXES:
        xs = [x for _, (x,) in read_columns(path, choose)]
    elif column:
        raise BadOption(f"--column is for {', '.join(SUFFIXES)} files, but {path} is read as lines of text")
    else:
        xs = [line.strip() for _, line in read_lines(path)]
    if not xs:
        raise BadFile(path, "holds nothing to ask about")
    return xs
