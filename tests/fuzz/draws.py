"""What a case draws: from hypothesis, or from a seed, which is many times cheaper."""

import random
from collections.abc import Sequence
from typing import Any, Protocol

from hypothesis import strategies as st
from hypothesis.strategies import DataObject

_RANGES = (
    *[(0x20, 0x7E)] * 6, (0x00, 0x1F), (0x7F, 0xFF), (0x100, 0x24F), (0x300, 0x36F), (0x370, 0x6FF), (0x2000, 0x206F),
    (0x3040, 0x9FFF), (0xE000, 0xF8FF), (0xFE00, 0xFFFF), (0x1F300, 0x1FAFF), (0xE0000, 0xE007F), (0x20000, 0x10FFFF),
)  # fmt: skip
"""Where characters are drawn from: mostly ASCII, then controls, accents, marks, other scripts, emoji, private ones."""


class Draws(Protocol):
    """Choices of a case."""

    def integer(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        ...

    def choice(self, among: Sequence[Any]) -> Any:
        """One of several."""
        ...

    def text(self, most: int) -> str:
        """A text of at most so many characters."""
        ...

    def bytes(self, most: int) -> bytes:
        """At most so many bytes."""
        ...


class FromHypothesis:
    """Choices by hypothesis, which prefers what often goes wrong and varies what it has tried."""

    def __init__(self, data: DataObject) -> None:
        self.data = data

    def integer(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))

    def choice(self, among: Sequence[Any]) -> Any:
        return self.data.draw(st.sampled_from(among))

    def text(self, most: int) -> str:
        return self.data.draw(st.text(max_size=most))

    def bytes(self, most: int) -> bytes:
        return self.data.draw(st.binary(max_size=most))


class FromSeed:
    """Choices by a random generator; an integer of a wide range is one of its ends in a tenth of the cases."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        if high - low > 10 and self.random.random() < 0.1:
            return self.random.choice((low, high))
        return self.random.randint(low, high)

    def choice(self, among: Sequence[Any]) -> Any:
        return among[self.random.randrange(len(among))]

    def text(self, most: int) -> str:
        count = self.random.randint(0, most)
        return "".join(chr(self.random.randint(*self.random.choice(_RANGES))) for _ in range(count))

    def bytes(self, most: int) -> bytes:
        return self.random.randbytes(self.random.randint(0, most))
