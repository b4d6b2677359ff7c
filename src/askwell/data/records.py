"""Reads files of other projects: JSON lines, JSON documents and plain lines, with errors that name file and line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from askwell.errors import BadFile
from askwell.files import read_text


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers."""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            yield number, line


def read_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, with their line numbers."""
    for number, line in read_lines(path):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadFile(path, f"broken JSON: {error}", number) from error
        if not isinstance(record, dict):
            raise BadFile(path, "a line must be an object, {…}", number)
        _need_whole_characters(path, number, line, record)
        yield number, record


def read_object(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds."""
    text = read_text(path)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadFile(path, f"broken JSON: {error.msg}", error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise BadFile(path, f"broken JSON: {error}") from error
    if not isinstance(content, dict):
        raise BadFile(path, "the file must hold one object, {…}")
    _need_whole_characters(path, None, text, content)
    return content


def first_record(path: Path) -> dict[str, Any]:
    """The first object of a file of JSON lines; empty if it has none."""
    return next((record for _, record in read_records(path)), {})


def file_name(path: Path, line: int | None, name: str) -> str:
    """A relation's name, if it can be the name of a file."""
    if not name or name.startswith(".") or any(character in name for character in "/\\:\0\n") or name != name.strip():
        raise BadFile(path, f"{name!r} is no name for a relation: it must do as a file name", line)
    return name


def _need_whole_characters(path: Path, line: int | None, text: str, content: object) -> None:
    """Raises if JSON's \\u escapes spell half a character, which cannot be written again."""
    if "\\u" not in text:
        return
    try:
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadFile(path, "holds half a character (a lone surrogate such as \\ud800)", line) from error
