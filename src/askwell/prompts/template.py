"""A template: the text of a prompt, with one blank for x and one for y."""

import re
from dataclasses import dataclass
from typing import Literal

from askwell.errors import BadTemplate

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
