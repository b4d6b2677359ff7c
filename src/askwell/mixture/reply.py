"""What a mixture answers, as plain data: those who only receive answers need no torch."""

from dataclasses import dataclass

from askwell.display.summary import ShowsItself, Summary, per_cent


@dataclass(frozen=True, repr=False)
class Reply:
    """One answer to a question."""

    y: str
    probability: float
    by_prompt: tuple[float, ...]
    """The probability that each prompt gives to this answer."""

    def __repr__(self) -> str:
        return f"{self.y} ({per_cent(self.probability)})"


class Replies(ShowsItself, list[Reply]):
    """The answers to one question, best first: a list of `Reply` that shows itself as a table."""

    x: str = ""
    """What was asked about."""

    def summary(self) -> Summary:
        """The answers with their probabilities."""
        rows = [(per_cent(reply.probability), reply.y) for reply in self]
        return Summary(self.x or "answers", ("probability", "answer"), rows, ("probability",))


@dataclass(frozen=True)
class PromptReply:
    """What one prompt of a mixture answers by itself."""

    prompt: int
    """Its number among the mixture's prompts."""
    y: str
    """Empty where it finds no answer."""
    probability: float
