"""Two runs held against each other on the facts that both answered."""

from askwell.comparison.compare import ChangedFact, Comparison, Difference, RelationComparison, compare_outcomes
from askwell.comparison.metric import Metric
from askwell.comparison.pairs import Unit
from askwell.comparison.runs import read_run, read_runs

__all__ = [
    "ChangedFact",
    "Comparison",
    "Difference",
    "Metric",
    "RelationComparison",
    "Unit",
    "compare_outcomes",
    "read_run",
    "read_runs",
]
