"""Reads facts from files (JSON lines, CSV, TSV), and relations from folders of splits or single files."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import NoReturn

from askwell.data.facts import SPLIT_FILES, Fact, Relation
from askwell.data.sources import data_folder, find
from askwell.data.split import SplitRule, split_facts
from askwell.errors import BadFile, BadOption, UserMistake
from askwell.files import read_text

# LAMA's labels come before sub and obj: its Google-RE lines have both, and there sub and obj are Freebase ids.
KEYS = (("x", "y"), ("sub_label", "obj_label"), ("sub", "obj"))
_EXPECTED = ", or ".join(f"{x!r} and {y!r}" for x, y in KEYS)


def parse_facts(path: Path) -> list[Fact]:
    """The facts of a .jsonl, .csv or .tsv file, in the file's order, repeated ones kept."""
    parse = _PARSERS.get(path.suffix.lower())
    if parse is None:
        raise BadFile(path, f"unknown ending {path.suffix!r}: a file of facts ends in {', '.join(SUFFIXES)}")
    facts = list(parse(path, read_text(path)))
    if not facts:
        raise BadFile(path, "the file holds no fact")
    return facts


def _jsonl(path: Path, text: str) -> Iterator[Fact]:
    # Not splitlines(), which also breaks lines at characters that JSON allows inside of strings (U+2028 and others).
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            fields = _JSON.decode(line)
        except json.JSONDecodeError as error:
            raise BadFile(path, f"broken JSON: {error.msg} at column {error.colno}", number) from error
        except (ValueError, RecursionError) as error:
            raise BadFile(path, f"broken JSON: {error}", number) from error
        if not isinstance(fields, dict):
            raise BadFile(path, f'a line must look like {{"x": …, "y": …}}, but this is {_kind(fields)}', number)
        keys = _find_keys(fields)
        if keys is None:
            raise BadFile(path, f"expected the keys {_EXPECTED}; found {_listed(fields)}", number)
        yield _fact(path, number, keys, fields)


def _table(path: Path, text: str, delimiter: str) -> Iterator[Fact]:
    rows = _rows(path, text, delimiter)
    number, header = next(rows, (1, None))
    if header is None:
        return
    names = [name.strip() for name in header]
    keys = _find_keys(dict.fromkeys(names))
    if keys is None:
        raise BadFile(path, f"expected a header with the columns {_EXPECTED}; found {_listed(names)}", number)
    for key in keys:
        if names.count(key) > 1:
            raise BadFile(path, f"the header has the column {key!r} more than once", number)
    for number, row in rows:
        if len(row) != len(names):
            advice = "; put a field that holds the separator in quotes" if len(row) > len(names) else ""
            raise BadFile(path, f"the header has {len(names)} fields, this row has {len(row)}{advice}", number)
        yield _fact(path, number, keys, dict(zip(names, row, strict=True)))


def _rows(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with the line that it begins on (a quoted field can hold line breaks)."""
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


def _find_keys(fields: Mapping[str, object]) -> tuple[str, str] | None:
    return next(((x, y) for x, y in KEYS if x in fields and y in fields), None)


def _fact(path: Path, number: int, keys: tuple[str, str], fields: Mapping[str, object]) -> Fact:
    texts = []
    for key in keys:
        value = fields[key]
        if not isinstance(value, str):
            raise BadFile(path, f"{key!r} must be text, but is {_kind(value)}", number)
        text = value.strip()
        if not text:
            raise BadFile(path, f"{key!r} is empty", number)
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise BadFile(path, f"{key!r} holds half a character (a lone surrogate such as \\ud800)", number)
        texts.append(text)
    return Fact(*texts)


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return "a single value"


def _listed(names: Mapping[str, object] | list[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


# Numbers stay as they are written: 1.50 is not 1.5. One decoder for all lines: json.loads would make one for each.
_JSON = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant)

_PARSERS: dict[str, Callable[[Path, str], Iterator[Fact]]] = {
    ".jsonl": _jsonl,
    ".csv": lambda path, text: _table(path, text, ","),
    ".tsv": lambda path, text: _table(path, text, "\t"),
}
SUFFIXES = tuple(_PARSERS)


_EXPECTED_FILES = "a folder of facts has train.jsonl, dev.jsonl and test.jsonl"


def read_relation(
    source: str | Path, *, data: Path | None = None, split: SplitRule | str | None = None, seed: int = 0
) -> Relation:
    """The relation that a folder of splits or one file holds; a file is split by `split` (80-10-10 at random).

    `source` is a path, or a name in the data folder (`data`, else ASKWELL_DATA) such as trex_original/P19.
    """
    path = find(str(source), "facts", data_folder(data))
    # A path of the machine must not get into results: a name is what stands in the data folder, or the last part.
    name = _last_part(path) if path == Path(source) else PurePath(source).as_posix()
    if path.is_dir():
        if split is not None:
            raise BadOption(
                f"the split {split!r} cannot be had for {source}: it is a folder, and its own splits are used as they"
                " are; give one file to have it split"
            )
        return _read_folder(path, name)
    return _read_file(path, name, split or "random", seed)


def _read_folder(folder: Path, name: str) -> Relation:
    missing = [file for file in SPLIT_FILES if not (folder / file).is_file()]
    if len(missing) == len(SPLIT_FILES):
        raise BadFile(folder, f"no facts here: {_EXPECTED_FILES}{_relations_inside(folder)}")
    if missing:
        raise BadFile(folder / missing[0], f"there is no such file; {_EXPECTED_FILES}")
    train, dev, test = (parse_facts(folder / file) for file in SPLIT_FILES)
    return Relation.of(name, train, dev, test)


def _read_file(path: Path, name: str, rule: SplitRule | str, seed: int) -> Relation:
    facts = parse_facts(path)
    try:
        train, dev, test = split_facts(facts, rule, seed)
    except BadOption:
        raise
    except UserMistake as error:
        raise BadFile(path, str(error)) from error
    return Relation.of(name, train, dev, test, removed=len(facts) - len(train) - len(dev) - len(test))


def _relations_inside(folder: Path) -> str:
    inside = sorted(file.parent.name for file in folder.glob("*/train.jsonl"))
    if not inside:
        return f" (and one file of facts ends in {', '.join(SUFFIXES)})"
    shown = ", ".join(inside[:3]) + (", …" if len(inside) > 3 else "")
    return f"; this folder holds {len(inside)} of them: name one ({shown})"


def _last_part(path: Path) -> str:
    if path.name in ("", ".."):
        path = path.resolve()
    return path.name if path.is_dir() else path.stem


@dataclass(frozen=True)
class SplitLines:
    """The facts of a relation in the order of their lines, repeated ones kept."""

    name: str
    train: tuple[Fact, ...]
    dev: tuple[Fact, ...]
    test: tuple[Fact, ...]

    @classmethod
    def of(cls, relation: Relation) -> "SplitLines":
        """The facts of a relation, in its canonical order."""
        return cls(relation.name, relation.train, relation.dev, relation.test)


def read_set(folder: Path) -> list[SplitLines]:
    """The relations whose folders lie in `folder`, sorted by name; empty if there are none."""
    return [
        read_split_files(inner)
        for inner in sorted({file.parent for name in SPLIT_FILES for file in folder.glob(f"*/{name}")})
    ]


def read_split_files(folder: Path) -> SplitLines:
    """The relation whose splits lie in `folder`. It is not sorted: which y comes first in train's file decides ties."""
    train, dev, test = (tuple(parse_facts(folder / file)) for file in SPLIT_FILES)
    return SplitLines(folder.name or folder.resolve().name, train, dev, test)
