"""Facts that cannot be asked, why, and what to do about it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from askwell.data.facts import Fact
from askwell.errors import NothingLeft

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
