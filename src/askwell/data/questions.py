"""The x's of a file that is to be asked about."""

import csv
import json
from pathlib import Path

from askwell.errors import BadFile, BadOption
from askwell.files import read_text

_COLUMNS = ("x", "sub_label", "sub")


def read_xs(path: Path, column: str | None) -> list[str]:
    """One x for each line of text, or for each row of a table, in the file's order."""
    readers = {".csv": _read_table, ".tsv": _read_table, ".jsonl": _read_jsonl}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        if column:
            raise BadOption(f"--column goes with a .csv, .tsv or .jsonl file, and {path} is read as lines of text")
        xs = [line.strip() for line in read_text(path).split("\n") if line.strip()]
    else:
        xs = reader(path, column)
    if not xs:
        raise BadFile(path, "holds nothing to ask about")
    return xs


def _read_jsonl(path: Path, column: str | None) -> list[str]:
    xs = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise BadFile(path, f"broken JSON: {error.msg} at column {error.colno}", number) from None
            fields = record if isinstance(record, dict) else {}
            xs.append(_checked(path, number, fields.get(_choose(path, number, fields, column))))
    return xs


def _read_table(path: Path, column: str | None) -> list[str]:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    rows = csv.DictReader(read_text(path).splitlines(keepends=True), delimiter=delimiter)
    name = _choose(path, 1, dict.fromkeys(rows.fieldnames or ()), column)
    return [_checked(path, rows.line_num, row[name]) for row in rows]


def _choose(path: Path, line: int, fields: dict[str, object], column: str | None) -> str:
    for name in [column] if column else _COLUMNS:
        if name in fields:
            return name
    wanted = f"no column {column!r}" if column else f"none of the columns {', '.join(_COLUMNS)}; name one with --column"
    raise BadFile(path, f"{wanted}; there are: {', '.join(fields) or 'none'}", line)


def _checked(path: Path, line: int, value: object) -> str:
    if not isinstance(value, str | int | float) or not str(value).strip():
        raise BadFile(path, "x is empty or no text", line)
    return str(value).strip()
