"""Reads a sweep from TOML, and says in one message what is wrong with it."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from askwell.errors import BadFile
from askwell.specs import LMChoice, Setting, SweepSpec
from askwell.specs.sweep import unknown_key
from askwell.text_file import read_text


def read_sweep(path: Path, instead: Mapping[str, Any] | None = None) -> SweepSpec:
    """The sweep that a TOML file describes, where keys of `instead` take the place of the file's."""
    try:
        table = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise BadFile(path, f"is no TOML: {error}") from None
    try:
        return SweepSpec.model_validate({**table, **(instead or {})})
    except ValidationError as error:
        raise BadFile(path, "; ".join(_in_words(problem) for problem in error.errors())) from None


def _in_words(problem: Any) -> str:
    """One problem, with the key as it stands in the file."""
    # Settings are flat in the file; which of the two specs a key belongs to is nothing to the reader.
    parts = [str(part) for part in problem["loc"] if part not in ("mixture", "training")]
    key = ".".join(parts)
    if problem["type"] == "extra_forbidden":
        above = ".".join(parts[:-1])
        return f"{above + ': ' if above else ''}{unknown_key(parts[-1], _keys_at(parts))}"
    if problem["type"] == "missing":
        return f"{key} is missing"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{key}: {message}" if key else message


def _keys_at(parts: list[str]) -> tuple[str, ...]:
    table: type[BaseModel] = {"lms": LMChoice, "settings": Setting}.get(parts[0], SweepSpec)
    return tuple(table.model_fields)
