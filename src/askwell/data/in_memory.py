"""Facts in memory: pairs, dictionaries, and whatever has columns (pandas, polars, Arrow, datasets).

None of these libraries is imported: anything with `columns` or `column_names` that can be indexed by them is a table.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any

from askwell.data.facts import Fact, Relation, SplitName
from askwell.data.readers import USUAL, Columns
from askwell.data.split import split_relation
from askwell.errors import BadOption, UsageError
from askwell.files import is_utf8
from askwell.views.printable import clipped

# What other libraries call the splits.
_SPLIT_KEYS: dict[str, SplitName] = {
    "train": "train",
    "dev": "dev",
    "validation": "dev",
    "valid": "dev",
    "test": "test",
}
_EXPECTED = (
    "pairs such as [('France', 'Paris'), …], a dictionary {'France': 'Paris', …}, a table with columns for x and y, "
    "or a dictionary of such by split: {'train': …, 'dev': …, 'test': …}"
)


def relation_in_memory(
    source: Any, columns: Columns, *, split: str | None = None, seed: int = 0, name: str = "facts"
) -> Relation:
    """Return the relation of facts in memory, split by a rule unless they come as a dictionary of splits."""
    if isinstance(source, Relation):
        return source
    by_split = _given_splits(source)
    if by_split is not None:
        if split is not None:
            raise BadOption(f"the facts are already split ({', '.join(source)}); leave out the rule {split!r}")
        return Relation.of(name, *(_facts(by_split[one], columns, one) for one in ("train", "dev", "test")))
    return split_relation(name, _facts(source, columns, "facts"), split, seed)


def _given_splits(source: Any) -> dict[SplitName, Any] | None:
    """Return the parts of a dictionary of splits, under our names; None if it is something else."""
    if not isinstance(source, Mapping) or not source or not all(key in _SPLIT_KEYS for key in source):
        return None
    if any(isinstance(part, str) for part in source.values()):
        return None  # {"test": "exam"} is a fact
    found = {_SPLIT_KEYS[key]: part for key, part in source.items()}
    missing = [one for one in ("train", "dev", "test") if one not in found]
    if missing or len(found) < len(source):
        raise UsageError(
            f"facts by split need each of train, dev (or validation) and test once; found {', '.join(source)}"
        )
    return found


def _facts(source: Any, columns: Columns, what: str) -> list[Fact]:
    rows = _table_rows(source, columns, what) or _rows(source, columns, what)
    facts = [Fact(_text(x, what, row, "x"), _text(y, what, row, "y")) for row, (x, y) in enumerate(rows)]
    if not facts:
        raise UsageError(f"{what}: there are no facts")
    return facts


def _table_rows(source: Any, columns: Columns, what: str) -> Iterator[tuple[Any, Any]] | None:
    """Return the two columns of a table side by side; None if it is not a table."""
    # An Arrow table has both, and its `columns` are the values themselves.
    names = getattr(source, "column_names", None) or getattr(source, "columns", None)
    is_of_columns = isinstance(source, Mapping) and source and all(map(_is_row, source.values()))
    if is_of_columns and (columns != USUAL or {*source} >= {"x", "y"}):
        names = list(source)
    if names is None or callable(names):
        return None
    try:
        x, y = columns.found([str(name) for name in names])
    except ValueError as error:
        raise UsageError(f"{what}: {error}") from None
    found = (source[_only(names, column, what)] for column in (x, y))
    in_x, in_y = (column.to_pylist() if hasattr(column, "to_pylist") else list(column) for column in found)
    if len(in_x) != len(in_y):
        raise UsageError(f"{what}: column {x!r} has {len(in_x)} values, {y!r} has {len(in_y)}")
    return zip(in_x, in_y, strict=True)


def _only(names: Iterable[Any], column: str, what: str) -> Any:
    """Return the name that reads so as text; a table can have several such columns, and would return all of them."""
    first, *others = (name for name in names if str(name) == column)
    if others:
        raise UsageError(f"{what}: there are several columns {column!r}; rename or leave out the others")
    return first


def _is_row(part: Any) -> bool:
    """Tell whether something is a row or a column of values, and not a text."""
    return isinstance(part, Sequence) and not isinstance(part, str)


def _rows(source: Any, columns: Columns, what: str) -> Iterator[tuple[Any, Any]]:
    if isinstance(source, Mapping):
        for x, ys in source.items():
            for y in ys if isinstance(ys, list | tuple | set | frozenset) else [ys]:
                yield x, y
        return
    if isinstance(source, str | bytes) or not isinstance(source, Iterable):
        raise UsageError(f"{what}: {type(source).__name__} holds no facts; give {_EXPECTED}")
    for number, row in enumerate(source):
        if isinstance(row, Fact):
            yield row.x, row.y
        elif isinstance(row, Mapping):
            keys = {str(key): key for key in row}
            try:
                x, y = columns.found(keys)
            except ValueError as error:
                raise UsageError(f"{what}, number {number}: {error}") from None
            yield row[keys[x]], row[keys[y]]
        elif _is_row(row) and len(row) == 2:
            yield row[0], row[1]
        else:
            raise UsageError(
                f"{what}, number {number}: {clipped(repr(row), 60)} is not a pair (x, y); give {_EXPECTED}"
            )


def _text(value: Any, what: str, row: int, name: str) -> str:
    """Return a value as text. Integers are written out; values that can be written in several ways are refused."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str):
        if not value.strip():
            raise UsageError(f"{what}, number {row}: {name} is empty")
        if not is_utf8(value):
            raise UsageError(f"{what}, number {row}: {name} holds half a character (a lone surrogate such as \\ud800)")
        return value.strip()
    is_missing = value is None or (isinstance(value, float) and math.isnan(value)) or type(value).__name__ == "NAType"
    written = f"is {clipped(repr(value), 60)}; write it as text, the way the LM should say it"
    problem = "is missing; leave out such rows" if is_missing else written
    raise UsageError(f"{what}, number {row}: {name} {problem}")
