"""The metrics, in one table, and the means of them over facts and over relations.

A metric is one entry of METRICS: `evaluate`, `compare`, the columns of `runs`, the tables of a report and the model
card take their metrics from it.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from askwell.errors import BadOption

if TYPE_CHECKING:  # the command line reads this table for its options, and should start fast
    from askwell.evaluation.outcomes import Outcome

Scores = dict[str, float]
"""The mean of each metric, by the metric's name, in the metric's unit."""
Average = Literal["micro", "macro"]
"""The mean over facts (the paper's), or the mean of the relations' means (LAMA's)."""


@dataclass(frozen=True)
class Metric:
    """What a fact contributes to a score, and how the score is shown."""

    name: str
    value: Callable[["Outcome"], float]
    """The value of one fact; a score is the mean of these, times `scale`."""
    most: float = math.inf
    """The largest value of one fact."""
    higher_is_better: bool = True
    scale: float = 100.0
    decimals: int = 1
    unit: str = "per cent"
    of_rank: bool = True
    """Whether the value follows from the rank alone. Of controls, only the ranks are saved."""

    @property
    def key(self) -> str:
        """The metric's name where names are identifiers: keys of JSON objects, columns of a table of runs."""
        return self.name.replace("-", "_")

    def text(self, score: float | None) -> str:
        """Return a score as it is shown; a dash for none."""
        return "–" if score is None else f"{score:.{self.decimals}f}"

    def is_known(self, outcome: "Outcome") -> bool:
        """Tell whether a fact's contribution is known, even if a search was cut."""
        return outcome.is_settled or self.value(outcome) == self.value(outcome.at_worst())

    def mean(self, outcomes: Sequence["Outcome"]) -> float:
        """Compute the score of some outcomes as a mean over them."""
        if not outcomes:
            raise BadOption("there are no outcomes, so there are no scores")
        return self.scale / len(outcomes) * sum(self.value(outcome) for outcome in outcomes)


LOG_LOSS = "log-loss"
METRICS = MappingProxyType(
    {
        metric.name: metric
        for metric in (
            Metric("P@1", lambda outcome: float(outcome.rank <= 1), most=1.0),
            Metric("P@10", lambda outcome: float(outcome.rank <= 10), most=1.0),
            Metric("MRR", lambda outcome: 1 / outcome.rank, most=1.0),
            Metric(
                LOG_LOSS,
                lambda outcome: -outcome.log_probability,
                higher_is_better=False,
                scale=1.0,
                decimals=3,
                unit="nats",
                of_rank=False,
            ),
        )
    }
)
"""All metrics by name."""
RANK_METRICS = tuple(metric.name for metric in METRICS.values() if metric.of_rank)
"""Those that follow from ranks."""
TABLE_METRICS = tuple(name for name in METRICS if name != LOG_LOSS)
"""Those shown side by side in tables. The log-loss is shown separately: it is infinite if one y is impossible."""


def units_of(names: Sequence[str] = TABLE_METRICS) -> str:
    """Return the unit of some metrics in words, such as "in per cent"; the unit of each, where they differ."""
    by_unit: dict[str, list[str]] = {}
    for name in names:
        by_unit.setdefault(METRICS[name].unit, []).append(name)
    if len(by_unit) == 1:
        return f"in {next(iter(by_unit))}"
    return "; ".join(f"{', '.join(of_unit)} in {unit}" for unit, of_unit in by_unit.items())


def metric_named(name: str) -> Metric:
    """Return the metric of this name; the error for an unknown name lists all of them."""
    if name not in METRICS:
        raise BadOption(f"there is no metric {name!r}: choose one of {', '.join(METRICS)}")
    return METRICS[name]


def scores_of(outcomes: Sequence["Outcome"], metrics: Iterable[str] = TABLE_METRICS) -> Scores:
    """Compute the scores of some outcomes, each as a mean over all of them (micro)."""
    return {name: METRICS[name].mean(outcomes) for name in metrics}


def macro(outcomes: Sequence["Outcome"], metrics: Iterable[str] = TABLE_METRICS) -> Scores:
    """Compute the mean of the relations' means."""
    metrics = tuple(metrics)
    each = [scores_of(of_relation, metrics) for of_relation in by_relation(outcomes).values()]
    if not each:
        raise BadOption("there are no outcomes, so there are no scores")
    return {name: sum(scores[name] for scores in each) / len(each) for name in metrics}


def log_loss_of(outcomes: Sequence["Outcome"]) -> float | None:
    """Compute the mean of -log p(y | x, r) in nats; None if it is infinite, since some y has probability 0."""
    loss = sum(map(METRICS[LOG_LOSS].value, outcomes)) / len(outcomes)
    return loss if math.isfinite(loss) else None


def mean_of_known(figures: Sequence[float | None], weights: Sequence[float] | None = None) -> float | None:
    """Return the mean; None if one of the figures is not known, since a mean over the others would be another thing."""
    known = [figure for figure in figures if figure is not None]
    return fmean(known, weights) if known and len(known) == len(figures) else None


def by_relation(outcomes: Iterable["Outcome"]) -> dict[str, list["Outcome"]]:
    """Group outcomes by relation, in order of first appearance."""
    relations: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        relations.setdefault(outcome.relation, []).append(outcome)
    return relations
