"""P@1, P@10 and MRR, over facts and over relations.

What one fact adds to a score.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from askwell.errors import BadOption
from askwell.evaluation.outcomes import Outcome


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


Metric = Literal["P@1", "P@10", "MRR", "log-loss"]


def value_of(outcome: Outcome, metric: Metric) -> float:
    """The fact's part in the score: 0 or 1 for precision, 1 / rank for MRR, -log p(y | x, r) in nats for log-loss."""
    match metric:
        case "P@1":
            return float(outcome.rank <= 1)
        case "P@10":
            return float(outcome.rank <= 10)
        case "MRR":
            return 1 / outcome.rank
        case "log-loss":
            return -outcome.log_probability
    raise BadOption(f"there is no metric {metric!r}: choose one of P@1, P@10, MRR, log-loss")


def scale_of(metric: Metric) -> float:
    """What a mean of values is multiplied by to be shown: all but log-loss are in per cent."""
    return 1.0 if metric == "log-loss" else 100.0


def less_is_better(metric: Metric) -> bool:
    """Whether a smaller value is the better one."""
    return metric == "log-loss"
