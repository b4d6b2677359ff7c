"""What a mixture answers, as plain data: those who only receive answers need no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Reply:
    """One answer to a question."""

    y: str
    probability: float
    by_prompt: tuple[float, ...]
    """The probability that each prompt gives to this answer."""
