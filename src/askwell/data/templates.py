"""Templates: the text of a prompt with one blank for x and one for y, as it is typed and as files hold it."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from askwell.data.sources import data_folder, find
from askwell.errors import BadFile, BadTemplate
from askwell.files import read_text

Blank = Literal["[X]", "[Y]"]
_BLANK = re.compile(r"\[[XY]\]")
_BLANK_IN_OTHER_LETTERS = re.compile(r"\[\s*([xyXY])\s*\]")


@dataclass(frozen=True)
class Template:
    """A prompt's text: three stretches of words around two blanks, e.g. `[X] was born in [Y] .`"""

    before: str
    first: Blank
    between: str
    second: Blank
    after: str
    weight: float | None = None
    """The weight that stands in the prompt file, where there is one."""

    @property
    def text(self) -> str:
        """The template as one line of text."""
        return f"{self.before}{self.first}{self.between}{self.second}{self.after}"

    @property
    def x_first(self) -> bool:
        """Whether x's blank stands before y's."""
        return self.first == "[X]"


def parse_template(text: str, weight: float | None = None) -> Template:
    """The template that `text` spells; spaces at both of its ends do not count."""
    text = text.strip()
    blanks = _BLANK.findall(text)
    for blank in ("[X]", "[Y]"):
        if (count := blanks.count(blank)) != 1:
            raise BadTemplate(f"template {text!r} has {_times(count)} {blank}; {_advice(text, blank)}")
    before, between, after = _BLANK.split(text)
    return Template(before, blanks[0], between, blanks[1], after, weight)


def _times(count: int) -> str:
    return "no" if count == 0 else f"{count} times"


def _advice(text: str, blank: str) -> str:
    alike = [found.group() for found in _BLANK_IN_OTHER_LETTERS.finditer(text) if found.group(1).upper() in blank]
    if alike and blank not in alike:
        return f"write {blank} instead of {alike[0]}"
    return 'each blank stands exactly once, e.g. "[X] was born in [Y] ."'


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
