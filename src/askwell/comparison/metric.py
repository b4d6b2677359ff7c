"""What one fact adds to a score."""

from typing import Literal

from askwell.errors import BadOption
from askwell.evaluation.evaluate import Outcome

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
