"""P@1, P@10 and MRR, over facts and over relations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Scores:
    """Precision at 1 and at 10 and the mean reciprocal rank, in per cent."""

    p_at_1: float
    p_at_10: float
    mrr: float

    def as_json(self) -> dict[str, float]:
        """The scores under their usual names."""
        return {"P@1": self.p_at_1, "P@10": self.p_at_10, "MRR": self.mrr}


def scores_of(ranks: Sequence[float]) -> Scores:
    """The scores of a list of ranks."""
    if not ranks:
        raise ValueError("no ranks, no scores")
    share = 100 / len(ranks)
    return Scores(
        p_at_1=share * sum(rank <= 1 for rank in ranks),
        p_at_10=share * sum(rank <= 10 for rank in ranks),
        mrr=share * sum(1 / rank for rank in ranks),
    )


def micro(ranks: Mapping[str, Sequence[float]]) -> Scores:
    """The mean over all facts of all relations (the paper's average)."""
    return scores_of([rank for of_relation in ranks.values() for rank in of_relation])


def macro(ranks: Mapping[str, Sequence[float]]) -> Scores:
    """The mean of the relations' means (LAMA's average); a relation without facts has no mean and no part."""
    each = [scores_of(of_relation) for of_relation in ranks.values() if of_relation]
    return Scores(
        p_at_1=sum(scores.p_at_1 for scores in each) / len(each),
        p_at_10=sum(scores.p_at_10 for scores in each) / len(each),
        mrr=sum(scores.mrr for scores in each) / len(each),
    )
