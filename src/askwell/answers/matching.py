"""What counts as the same answer: exactly the same string, or (loose) one that differs only in case, punctuation or an
article."""

import re
import unicodedata
from collections.abc import Iterable

from askwell.specs.mixture_spec import Match

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = re.compile(r"[^\w\s]|_")


def form_of(text: str, match: Match) -> str:
    """Return what an answer is compared by."""
    if match == "exact":
        return text
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = _ARTICLE.sub(" ", _PUNCTUATION.sub("", folded)).split()
    return " ".join(words) or folded  # an answer that is nothing but an article, or a sign, is itself


class RightAnswers:
    """Right answers, which a text can be `in`; `without` is one that is not looked for, such as y itself."""

    def __init__(self, texts: Iterable[str], match: Match, without: str | None = None) -> None:
        self._forms = {form_of(text, match) for text in texts if match == "loose" or text != without}
        self._match: Match = match
        self._without = without

    def __contains__(self, text: str) -> bool:
        return text != self._without and form_of(text, self._match) in self._forms
