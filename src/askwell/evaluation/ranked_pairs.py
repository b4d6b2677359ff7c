"""K: how many pairs of a right and a wrong candidate are ranked correctly, if answers are chosen among candidates."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from askwell.evaluation.outcomes import Outcome


@dataclass(frozen=True)
class RankedPairs:
    """How well right candidates are told from wrong ones, in per cent."""

    facts: int
    """Facts that have a wrong candidate."""
    pairs: int
    """Pairs of a fact's y and a candidate that is wrong for its x."""
    share: float
    """K: the mean over facts of the share of their wrong candidates that are less probable than y, half for ties."""
    all_of_fact: float
    """K*: the share of facts of which all wrong candidates are less probable than y."""


def ranked_pairs(
    outcomes: Sequence[Outcome], labels: Sequence[str], label_of: Callable[[str], str | None]
) -> RankedPairs | None:
    """Compute K and K* from ranks among the labels; None if no fact has a wrong candidate.

    `label_of` gives the label of a y. Ranks leave out the other right answers of x, and count a tie as half, so they
    hold the number of wrong candidates that are more probable than y.
    """
    every, shares, pairs = set(labels), [], 0
    for outcome in outcomes:
        wrong = len(every - {label_of(gold) for gold in (*outcome.golds, outcome.y)})
        if wrong:
            shares.append(1 - (outcome.rank - 1) / wrong)
            pairs += wrong
    if not shares:
        return None
    return RankedPairs(len(shares), pairs, 100 * fmean(shares), 100 * fmean(share == 1 for share in shares))


def pairs_together(found: Sequence[RankedPairs | None]) -> RankedPairs | None:
    """Combine the figures of several evaluations as means over all their facts; None if one has none."""
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return None
    facts = sum(one.facts for one in known)
    share = sum(one.share * one.facts for one in known) / facts
    all_of_fact = sum(one.all_of_fact * one.facts for one in known) / facts
    return RankedPairs(facts, sum(one.pairs for one in known), share, all_of_fact)
