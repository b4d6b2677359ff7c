"""Answers that need no LM. What they score, a method gets for nothing."""

from collections import Counter
from collections.abc import Sequence

from askwell.facts import Fact


def majority_y(train: Sequence[Fact]) -> str:
    """Train's most common y, repeated lines counted; of several the one that comes first in the file."""
    return Counter(fact.y for fact in train).most_common(1)[0][0]


class CopyFromTrain:
    """Answers with train's most common y for the same x; of several the one that comes first in the file."""

    def __init__(self, train: Sequence[Fact]) -> None:
        ys: dict[str, Counter[str]] = {}
        for fact in train:
            ys.setdefault(fact.x, Counter())[fact.y] += 1
        self._y_of = {x: counted.most_common(1)[0][0] for x, counted in ys.items()}

    def answer(self, x: str) -> str | None:
        """The answer, None for an x that train does not have."""
        return self._y_of.get(x)


class CopyFromX:
    """Answers with the longest of train's ys that stands inside x, whatever the case of its letters.

    Of several of one length it is the most common in train, then the one that comes first in the file.
    """

    def __init__(self, train: Sequence[Fact]) -> None:
        self._y_of: dict[str, str] = {}
        self._order: dict[str, int] = {}  # by how common it is
        for place, (y, _) in enumerate(Counter(fact.y for fact in train).most_common()):
            self._y_of.setdefault(y.casefold(), y)
            self._order.setdefault(y.casefold(), place)
        self._longest = max(map(len, self._y_of))

    def answer(self, x: str) -> str | None:
        """The answer, None if no y of train stands inside x."""
        text = x.casefold()
        for length in range(min(len(text), self._longest), 0, -1):
            pieces = {text[begin : begin + length] for begin in range(len(text) - length + 1)}
            if found := pieces & self._y_of.keys():
                return self._y_of[min(found, key=self._order.__getitem__)]
        return None


def stands_in(y: str, x: str) -> bool:
    """Whether y is a part of x, whatever the case of its letters (LAMA-UHN leaves such facts out)."""
    return y.casefold() in x.casefold()
