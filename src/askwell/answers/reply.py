"""What a mixture answers, which facts it is not asked, and what counts as the same answer, as plain data: code that
only receives answers needs no torch."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from askwell.data.facts import Fact
from askwell.errors import NothingLeft
from askwell.specs.mixture_spec import Match
from askwell.views.document import Document, overview
from askwell.views.printable import counted, per_cent
from askwell.views.to_files import AsFrame, Records
from askwell.views.to_text import ShowsItself


@dataclass(frozen=True, repr=False)
class Reply:
    """One answer to a question."""

    y: str
    probability: float
    by_prompt: tuple[float, ...]
    """The probability that each prompt gives to this answer."""

    def __repr__(self) -> str:
        return f"{self.y} ({per_cent(self.probability)})"


class Replies(ShowsItself, list[Reply], AsFrame):
    """The answers to one question, best first: a list of `Reply` that shows itself as a table."""

    x: str = ""
    """What was asked about."""
    unseen: float = 0.0
    """Answers below this probability may be missing, since the search for them was cut; 0 if none is."""

    @property
    def is_exact(self) -> bool:
        """Whether these are certainly the most probable answers."""
        return not self.unseen

    def summary(self) -> Document:
        """Summarise the answers with their probabilities."""
        rows = [(per_cent(reply.probability), reply.y) for reply in self]
        notes = () if self.is_exact else (missing_text(self.unseen),)
        return overview(self.x or "answers", ("probability", "answer"), rows, ("probability",), notes)

    def records(self) -> Records:
        """Return a row for each answer: x, its rank, the answer and its probability."""
        return [
            {"x": self.x, "rank": rank, "y": reply.y, "probability": reply.probability}
            for rank, reply in enumerate(self, start=1)
        ]


def unseen_in(replies: Sequence[Reply]) -> float:
    """Return the probability below which answers may be missing; 0 if none is."""
    return replies.unseen if isinstance(replies, Replies) else 0.0


def missing_text(unseen: float) -> str:
    """Return a sentence saying that less probable answers may be missing."""
    return f"answers below {100 * unseen:.2g} % may be missing: the search for them was cut"


class AllReplies(ShowsItself, list[Replies], AsFrame):
    """The answers to several questions: a list of `Replies` that shows itself as a table with a row for each x."""

    def summary(self) -> Document:
        """Summarise the best answer to each question, and those that come next."""
        rows = [
            (replies.x, per_cent(replies[0].probability), replies[0].y, ", ".join(map(str, replies[1:3])))
            if replies
            else (replies.x, "", "", "")
            for replies in self
        ]
        return overview(
            f"Answers to {counted(len(self), 'question')}",
            ("x", "probability", "answer", "next"),
            rows,
            ("probability",),
        )

    def records(self) -> Records:
        """Return a row for each answer to each question: x, the answer's rank, the answer and its probability."""
        return [record for replies in self for record in replies.records()]


@dataclass(frozen=True)
class PromptReply:
    """What one prompt of a mixture answers by itself."""

    number: int
    """Its place among the mixture's prompts, and in a reply's `by_prompt`."""
    template: str
    weight: float
    """p(t | r), or p(t | r, x) where it was asked for one x; in a product, its exponent."""
    y: str
    """Empty if it finds no answer."""
    probability: float


# ── facts that cannot be asked ────────────────────────────────────────────────────────────────────────────────────────

NOT_ONE_TOKEN = "y is not one token of the LM"
TOO_MANY_TOKENS = "y has more tokens than the longest answer may have"
NOT_SPELT = "y has a character that the LM's tokenizer does not know"


@dataclass(frozen=True)
class LeftOutFact:
    """A fact that is not asked, and why."""

    fact: Fact
    reason: str


def count_reasons(left_out: Iterable[LeftOutFact]) -> dict[str, int]:
    """Return how many facts were left out for each reason."""
    return dict(Counter(fact.reason for fact in left_out))


def way_out_of(reason: str) -> str:
    """Return what to do about facts that were left out for this reason, if anything."""
    return "; `askwell train --longest-answer N` allows for more" if reason == TOO_MANY_TOKENS else ""


def no_facts_left(what: str, left_out: Iterable[LeftOutFact]) -> NothingLeft:
    """Return the error for when all facts were left out, with what can be done about it."""
    reasons = count_reasons(left_out)
    return NothingLeft(what, reasons, "".join(way_out_of(reason) for reason in reasons))


# ── what counts as the same answer ────────────────────────────────────────────────────────────────────────────────────

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
