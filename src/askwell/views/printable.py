"""Texts as they are shown: with no character that would act on a terminal or spreadsheet, and numbers with their nouns.

Names of relations and LMs, x's, templates and file names come from files that others wrote. A control character in one
of them could move a terminal's cursor or rename its window, and a bidirectional override could make a line appear to
say something else."""

import json
import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime

# Controls except tab and line feed, DEL and C1, bidirectional and invisible marks, line separators, characters that
# are none, lone surrogates.
_ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
MOST_CHARACTERS = 2000
"""The longest message that is shown."""


def printable(text: str) -> str:
    """Return the text with every character that would act rather than be seen written as a Python escape: \\x1b."""
    return _ACTING.sub(lambda match: ascii(match[0])[1:-1], text)


def clipped(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return the text, or its beginning and its end if it is longer."""
    if len(text) <= most:
        return text
    kept = (most - 5) // 2
    return f"{text[:kept]} […] {text[-kept:]}"


def shortened(text: str, most: int) -> str:
    """Return the text, or its beginning if it is longer."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def for_csv(value: object) -> object:
    """Return a value for a spreadsheet: text that would be read as a formula gets an apostrophe before it."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def json_escaped(document: str) -> str:
    """Return JSON with these characters as JSON escapes: it means the same and can be shown."""
    return _ACTING.sub(lambda match: json.dumps(match[0])[1:-1], document)


SPACE = "␣"
"""Shown for a space that is a word by itself."""
# They join letters of many scripts, and emoji: harmless inside a word, invisible alone.
_JOINERS = "\u200c\u200d"


def visible(text: str) -> str:
    """Return a word with characters that are invisible or would affect how it is drawn written as escapes."""
    if not text.strip(" " + _JOINERS):
        return "".join(_escape(char) if char in _JOINERS else SPACE for char in text or " ")
    shown = "".join(char if char.isprintable() or char in _JOINERS else _escape(char) for char in text)
    return f"◌{shown}" if unicodedata.category(shown[0]).startswith("M") else shown  # a combining mark needs a base


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


NONE = "–"
"""Shown where there is no figure."""


def per_cent(share: float) -> str:
    """Return a probability or fraction as a percentage."""
    return f"{100 * share:.1f} %"


def counted(count: int, word: str) -> str:
    """Return a number with its noun."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def listed(words: Sequence[str], before_last: str = "and") -> str:
    """Return the words as a list in a sentence."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {before_last} {words[-1]}"


def signed(figure: float, decimals: int = 1) -> str:
    """Return a difference with its sign."""
    return f"{figure:+.{decimals}f}".replace("-", "−")


def date_text(date: datetime) -> str:
    """Return a date and its time, in its own time zone."""
    return f"{date.day} {date:%B %Y, %H:%M %Z}"


def duration_text(seconds: float) -> str:
    """Return a duration in the two largest units that it has: 1 h 4 min, 3 min 20 s, 12 s."""
    whole = max(1, round(seconds))
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
