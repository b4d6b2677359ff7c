"""Reads facts and x's: from files (plain text, JSON lines, tables), line by line, so that errors name the line; and
from memory (pairs, dictionaries, and whatever has columns: pandas, polars, Arrow, datasets).

None of these libraries is imported: anything with `columns` or `column_names` that can be indexed by them is a table.
"""

import csv
import io
import json
import math
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from askwell.data.facts import Fact, Relation, SplitName
from askwell.data.split import refuse_rule, split_relation
from askwell.errors import BadFile, BadOption, UsageError, first_few
from askwell.files import is_utf8, read_text
from askwell.views.printable import clipped

Choose = Callable[[Collection[str]], tuple[str, ...]]
"""Picks columns from those of a file; raises UsageError if the right ones are missing."""


_LONGEST_NAME = 200
"""Bytes of a relation's name: a file name has 255 at most, with its ending and what is added while it is written."""
LONGEST_TEXT = 131_072
"""Characters of an x, a y or a template, as many as the csv module takes in a field; no LM reads as many, and to spell
a text of hundreds of megabytes in tokens would take all memory there is."""


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file of plain text that are not blank, with their numbers."""
    for number, line in _lines(path):
        yield number, bounded(path, number, "this line", line)


def bounded(path: Path, line: int | None, what: str, text: str) -> str:
    """Return a text of a file; raise BadFile if it is too long to be used."""
    if len(text) > LONGEST_TEXT:
        raise BadFile(path, f"{what} has {len(text):,} characters, more than {LONGEST_TEXT:,}: shorten it", line)
    return text


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    # Not splitlines(), which also breaks lines at characters that JSON allows inside of strings (U+2028 and others).
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            yield number, line


def read_records(path: Path, decoder: json.JSONDecoder | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file of JSON lines, with their line numbers."""
    for number, line in _lines(path):
        yield number, _object(path, number, line, decoder or _JSON)


def read_object(path: Path) -> dict[str, Any]:
    """Return the object that a JSON file holds."""
    return _object(path, None, read_text(path), _JSON)


def read_columns(path: Path, choose: Choose) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the texts of some columns of a .jsonl, .csv or .tsv file, none of them empty, with their line numbers.

    JSON numbers are taken as text, exactly as written: 1.50 is not 1.5.
    """
    for number, keys, fields in COLUMN_FILES[path.suffix.lower()](path, choose):
        texts = tuple(text_of(path, number, fields, key) for key in keys)
        if "" in texts:
            raise BadFile(path, f"{keys[texts.index('')]!r} is empty", number)
        yield number, texts


def text_of(path: Path, line: int | None, fields: Mapping[str, Any], key: str) -> str:
    """Return the text of a field, stripped; it can be empty."""
    value = fields.get(key)
    if not isinstance(value, str):
        problem = f"but is {_kind(value)}" if key in fields else f"but there are only {_named(fields)}"
        raise BadFile(path, f"{key!r} must be text, {problem}", line)
    return bounded(path, line, repr(key), value.strip())


def file_name(path: Path, line: int | None, name: str) -> str:
    """Return a relation's name, if it can be the name of a file."""
    if not is_file_name(name):
        problem = f"it must be usable as a file name, of at most {_LONGEST_NAME} bytes"
        raise BadFile(path, f"{clipped(repr(name), 60)} cannot name a relation: {problem}", line)
    return name


def is_file_name(name: str) -> bool:
    """Tell whether a name can be that of a file, on any system."""
    is_plain = name.isprintable() and name == name.strip() and not {*name} & {*"/\\:"}
    return is_plain and 0 < len(name.encode()) <= _LONGEST_NAME and not name.startswith(".")


def _named(names: Iterable[str]) -> str:
    return first_few([repr(name) for name in names], 20) or "none"


_Fields = Iterator[tuple[int, tuple[str, ...], Mapping[str, Any]]]


def _jsonl_fields(path: Path, choose: Choose) -> _Fields:
    for number, fields in read_records(path, _NUMBERS_AS_TEXT):
        yield number, _chosen(path, number, choose, fields), fields


def _table_fields(path: Path, choose: Choose, delimiters: str) -> _Fields:
    rows = _rows(path, delimiters)
    number, header = next(rows, (1, []))
    if not header:
        return
    names = [name.strip() for name in header]
    keys = _chosen(path, number, choose, names)
    for key in keys:
        if names.count(key) > 1:
            raise BadFile(path, f"the header has the column {key!r} more than once", number)
    for number, row in rows:
        if len(row) != len(names):
            advice = "; put a field that holds the separator in quotes" if len(row) > len(names) else ""
            raise BadFile(path, f"the header has {len(names)} fields, this row has {len(row)}{advice}", number)
        yield number, keys, dict(zip(names, row, strict=True))


def _rows(path: Path, delimiters: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, each with the line on which it begins (a quoted field can contain line
    breaks). Fields are separated by the first of the delimiters that is in the header."""
    text = read_text(path)
    header = text.lstrip().partition("\n")[0]
    delimiter = next((one for one in delimiters if one in header), delimiters[0])
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    while True:
        begin = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise BadFile(path, f"broken row: {error}; check its quotes", begin) from error
        if row is None:
            return
        if row:
            yield begin, row


def _chosen(path: Path, number: int, choose: Choose, names: Collection[str]) -> tuple[str, ...]:
    try:
        return choose(names)
    except UsageError as error:
        raise BadFile(path, str(error), number, **error.options) from None


def _object(path: Path, number: int | None, text: str, decoder: json.JSONDecoder) -> dict[str, Any]:
    content = parse_json(path, number, text, decoder)
    if not isinstance(content, dict):
        raise BadFile(path, f'expected an object such as {{"x": …, "y": …}}, but this is {_kind(content)}', number)
    return content


def parse_json(path: Path, number: int | None, text: str, decoder: json.JSONDecoder | None = None) -> Any:
    """Return the JSON of a file, or of one of its lines; raise BadFile if it is broken."""
    try:
        content = (decoder or _JSON).decode(text)
        is_text = "\\u" not in text or is_utf8(content)
    except json.JSONDecodeError as error:
        problem = f"broken JSON: {error.msg} at column {error.colno}"
        raise BadFile(path, problem, number or error.lineno) from error
    except RecursionError:
        raise BadFile(path, "broken JSON: it is nested too deeply", number) from None
    except ValueError as error:
        raise BadFile(path, f"broken JSON: {error}", number) from error
    if not is_text:
        raise BadFile(path, "broken JSON: half a character (a lone surrogate such as \\ud800)", number)
    return content


def _kind(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return {list: "a list", dict: "an object"}.get(type(value), "a single value")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


# One decoder for all lines: json.loads with options would make one for each.
_JSON = json.JSONDecoder()
_NUMBERS_AS_TEXT = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant)

COLUMN_FILES: dict[str, Callable[[Path, Choose], _Fields]] = {
    ".jsonl": _jsonl_fields,
    # Spreadsheets write semicolons where numbers have a decimal comma.
    ".csv": lambda path, choose: _table_fields(path, choose, ",;"),
    ".tsv": lambda path, choose: _table_fields(path, choose, "\t"),
}
"""The files with columns that can be read, by their endings."""


SUFFIXES = tuple(COLUMN_FILES)
# LAMA's labels come before sub and obj: its Google-RE lines have both, and there sub and obj are Freebase ids.
_KEYS = (("x", "y"), ("sub_label", "obj_label"), ("sub", "obj"))
ALIASES = "aliases"
_X_KEYS = ("x", "sub_label", "sub")


class Columns(NamedTuple):
    """The columns that hold x and y; None for the usual ones."""

    x: str | None = None
    y: str | None = None

    def found(self, there: Collection[str]) -> tuple[str, str]:
        """Return the names of both columns among those of a file; UsageError if one is missing."""
        options = {"x": "--x", "y": "--y"}
        for argument, name in (("x", self.x), ("y", self.y)):
            if name is not None and name not in there:
                raise UsageError(f"`{argument}` {name}: there is no such column; found {_named(there)}", **options)
        for x, y in _KEYS:
            if (self.x or x) in there and (self.y or y) in there:
                return self.x or x, self.y or y
        expected = ", or ".join(f"{x!r} and {y!r}" for x, y in _KEYS)
        such = ""
        if len(there) == 2:
            x, y = there
            call = f"x={x!r}, y={y!r}"
            options[call] = f"--x {shlex.quote(x)} --y {shlex.quote(y)}"
            such = f": `{call}`, or the other way round"
        raise UsageError(
            f"expected {expected} as keys or in the header; found {_named(there)}. "
            f"Other columns are named with `x` and `y`{such}",
            **options,
        )


USUAL = Columns()


def parse_facts(path: Path, columns: Columns = USUAL) -> list[Fact]:
    """Return the facts of a .jsonl, .csv or .tsv file, in the file's order, repeated ones kept.

    A list of ys on a line of JSON makes a fact of each; the column 'aliases' has further right answers for x."""
    if path.suffix.lower() not in SUFFIXES:
        raise BadFile(path, f"unknown ending {path.suffix!r}: a file of facts ends in {', '.join(SUFFIXES)}")
    facts = []
    for number, (x, y), fields in COLUMN_FILES[path.suffix.lower()](path, columns.found):
        (of_x,), ys = texts_of(path, number, {x: [fields.get(x)]}, x), texts_of(path, number, fields, y)
        aliases = texts_of(path, number, fields, ALIASES) if fields.get(ALIASES) else ()
        facts += [Fact(of_x, of_y, aliases=aliases) for of_y in ys]
    if not facts:
        raise BadFile(path, "the file holds no facts")
    return facts


def read_head(path: Path, rows: int) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns of a .jsonl, .csv or .tsv file, and its first rows as text."""
    names: list[str] = []

    def note(there: Collection[str]) -> tuple[str, ...]:
        names[:] = names or there
        return ()

    if path.suffix.lower() not in SUFFIXES:
        raise BadFile(path, f"unknown ending {path.suffix!r}: a file of facts ends in {', '.join(SUFFIXES)}")
    fields = [row for _, _, row in islice(COLUMN_FILES[path.suffix.lower()](path, note), rows)]
    return names, [[str(row.get(name, "")) for name in names] for row in fields]


def texts_of(path: Path, line: int | None, fields: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return the texts of a field, none of them empty: one text, or a list of several; aliases in a table are separated
    by |."""
    value = fields.get(key)
    several = value.split("|") if key == ALIASES and isinstance(value, str) else value
    texts = [{key: one} for one in several] if isinstance(several, list) else [fields]
    found = tuple(text_of(path, line, one, key) for one in texts)
    if "" in found or not found:
        raise BadFile(path, f"{key!r} is empty", line)
    return found


def read_xs(path: Path, column: str | None) -> list[str]:
    """Return one x for each line of text, or for each row of a table, in the file's order."""

    def choose(there: Collection[str]) -> tuple[str]:
        for name in [column] if column else _X_KEYS:
            if name in there:
                return (name,)
        wanted = f"no column {column!r}" if column else f"none of {', '.join(_X_KEYS)}; name a column with `column`"
        raise UsageError(f"{wanted}; there are: {', '.join(there) or 'none'}", column="--column")

    if path.suffix.lower() in SUFFIXES:
        xs = [x for _, (x,) in read_columns(path, choose)]
    elif column:
        raise BadOption(
            f"`column` is for {', '.join(SUFFIXES)} files, but {path} is read as lines of text", column="--column"
        )
    else:
        xs = [line.strip() for _, line in read_lines(path)]
    if not xs:
        raise BadFile(path, "holds nothing to ask about")
    return xs


# ── facts in memory ───────────────────────────────────────────────────────────────────────────────────────────────

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
            refuse_rule("what was given", split)
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
    if isinstance(source, list | tuple) and source and all(isinstance(row, Fact) for row in source):
        return [*source]
    rows = _table_rows(source, columns, what) or _pairs(source, columns, what)
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
    except UsageError as error:
        raise UsageError(f"{what}: {error}", **error.options) from None
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


def _pairs(source: Any, columns: Columns, what: str) -> Iterator[tuple[Any, Any]]:
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
            except UsageError as error:
                raise UsageError(f"{what}, number {number}: {error}", **error.options) from None
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
