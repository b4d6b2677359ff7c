"""Templates: the text of a prompt with one blank for x and one for y, as typed and as stored in files."""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from askwell.data.readers import read_lines, read_records, text_of
from askwell.errors import BadFile, BadTemplate, checked, checked_or
from askwell.files import is_utf8

Blank = Literal["[X]", "[Y]"]
_BLANK = re.compile(r"\[[XY]\]")
_SPACE_AT_PUNCTUATION = re.compile(r"\s+(?=[.,;:!?)]|'s\b)|(?<=\()\s+")
_BLANK_IN_OTHER_LETTERS = re.compile(r"\[\s*([xyXY])\s*\]")


@checked_or("templates can be given as they are written: '[X] was born in [Y] .'")
@dataclass(frozen=True)
class Template:
    """A prompt's text: three stretches of words around two blanks, e.g. `[X] was born in [Y] .`"""

    before: str
    first: Blank
    between: str
    second: Blank
    after: str
    weight: float | None = None
    """The weight that the prompt file gives it, if any."""

    @property
    def text(self) -> str:
        """Return the template as one line of text."""
        return f"{self.before}{self.first}{self.between}{self.second}{self.after}"

    @property
    def x_first(self) -> bool:
        """Return whether x's blank comes before y's."""
        return self.first == "[X]"

    @property
    def joined(self) -> "Template":
        """The same template with punctuation joined to its word, as people write: LAMA's and LPAQA's are tokenised."""
        return parse_template(_SPACE_AT_PUNCTUATION.sub("", self.text), self.weight)


@checked
def parse_template(text: str, weight: float | None = None) -> Template:
    """Return the template that `text` spells; spaces at its ends are ignored."""
    text = text.strip()
    blanks = _BLANK.findall(text)
    for blank in ("[X]", "[Y]"):
        if (count := blanks.count(blank)) != 1:
            found = f"{count} times" if count else "no"
            raise BadTemplate(f"template {text!r} has {found} {blank}; {_advice(text, blank)}")
    if not is_utf8(text):
        raise BadTemplate(f"template {text!r} holds bytes that are not UTF-8; write it in UTF-8")
    before, between, after = _BLANK.split(text)
    return Template(before, blanks[0], between, blanks[1], after, weight)


def parsed_templates(given: str | Template | Iterable[Template | str]) -> list[Template]:
    """Return one template or several, each as a text or already parsed."""
    several = [given] if isinstance(given, str | Template) or not isinstance(given, Iterable) else given
    return [one if isinstance(one, Template) else _parsed(one) for one in several]


def _parsed(given: Any) -> Template:
    if not isinstance(given, str):
        raise BadTemplate(f"{type(given).__name__} is not a template; write its text, e.g. '[X] was born in [Y] .'")
    if not _BLANK_IN_OTHER_LETTERS.search(given):
        raise BadTemplate(
            f"{given!r} is not a template: it has no [X] and no [Y]; askwell.load_prompts reads files and sets"
        )
    return parse_template(given)


def _advice(text: str, blank: str) -> str:
    alike = [found.group() for found in _BLANK_IN_OTHER_LETTERS.finditer(text) if found.group(1).upper() in blank]
    if alike and blank not in alike:
        return f"write {blank} instead of {alike[0]}"
    return 'each blank appears exactly once, e.g. "[X] was born in [Y] ."'


def read_templates(path: Path) -> list[Template]:
    """Return the templates of a prompt file: JSON lines, or one template per line, where lines that begin with # are
    comments.

    If some are not templates, the error names all of them.
    """
    if path.is_dir():
        raise BadFile(path, "is a folder; name one of its prompt files")
    templates: list[Template] = []
    mistakes: dict[int, str] = {}
    if path.suffix == ".jsonl":
        of_lines = ((n, text_of(path, n, one, "template"), weight_of(path, n, one)) for n, one in read_records(path))
    else:
        of_lines = ((n, line, None) for n, line in read_lines(path) if not line.lstrip().startswith("#"))
    for number, text, weight in of_lines:
        try:
            templates.append(parse_template(text, weight))
        except BadTemplate as error:
            mistakes[number] = str(error)
    if len(mistakes) == 1:
        ((number, mistake),) = mistakes.items()
        raise BadFile(path, mistake, line=number)
    if mistakes:
        named = "; ".join(f"line {number}: {mistake}" for number, mistake in list(mistakes.items())[:_NAMED_MISTAKES])
        more = f"; and {len(mistakes) - _NAMED_MISTAKES} more" if len(mistakes) > _NAMED_MISTAKES else ""
        raise BadFile(path, f"{len(mistakes)} lines are not templates: {named}{more}")
    if not templates:
        raise BadFile(path, "holds no templates")
    return templates


_NAMED_MISTAKES = 10


def templates_jsonl(templates: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of a prompt file, with a record such as {"template": …, "weight": …} for each line."""
    return "".join(json.dumps(template, ensure_ascii=False) + "\n" for template in templates)


def weight_of(path: Path, line: int, record: Mapping[str, Any]) -> float | None:
    """Return the weight in a record of a prompt file, if there is one."""
    weight = record.get("weight")
    if weight is None:
        return None
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not is_number or not 0 <= weight <= sys.float_info.max:
        raise BadFile(path, f"'weight' is {weight!r}; it must be a number that is not negative", line)
    return float(weight)
