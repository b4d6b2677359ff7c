"""Reads templates: from text as it is typed, and from files."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from askwell.data_folder import data_folder, find
from askwell.errors import BadFile, BadTemplate
from askwell.prompts.template import Template, parse_template
from askwell.text_file import read_text


def read_prompts(sources: str | Sequence[str], *, data: Path | None = None) -> list[Template]:
    """The templates of all sources in their order; a source is a template's text, a file, or a name in `data`."""
    if isinstance(sources, str):
        sources = [sources]
    data = data_folder(data)
    templates: list[Template] = []
    for source in sources:
        if "[X]" in source or "[Y]" in source:
            templates.append(parse_template(source))
        else:
            templates += _read_file(find(source, "prompts", data))
    return templates


def _read_file(path: Path) -> list[Template]:
    if path.is_dir():
        raise BadFile(path, "is a folder; name one prompt file of it")
    parse_line = _parse_json_line if path.suffix == ".jsonl" else _parse_plain_line
    templates = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            try:
                templates.append(parse_line(line))
            except (BadTemplate, ValueError) as error:
                raise BadFile(path, str(error), line=number) from None
    if not templates:
        raise BadFile(path, "holds no templates")
    return templates


def _parse_plain_line(line: str) -> Template:
    return parse_template(line)


def _parse_json_line(line: str) -> Template:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON ({error.msg} at column {error.colno})") from None
    if not isinstance(record, dict) or not isinstance(record.get("template"), str):
        raise ValueError('has no "template"; a line is e.g. {"template": "[X] was born in [Y] ."}')
    weight = record.get("weight")
    if weight is not None:
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not is_number or not 0 <= weight <= sys.float_info.max:
            raise ValueError(f'"weight" is {weight!r}; it must be a number that is not negative')
        weight = float(weight)
    return parse_template(record["template"], weight)
