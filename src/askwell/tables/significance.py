"""Whether one cell of a table is better than its neighbour, on the facts that both answered."""

from dataclasses import dataclass

import numpy as np

from askwell.comparison.metric import Metric, scale_of, value_of
from askwell.comparison.pairs import Outcomes, pair_outcomes
from askwell.comparison.permutation import permutation_test
from askwell.tables.group import RunGroup

LINE = 0.02
"""Below this p the paper calls a difference significant."""


@dataclass(frozen=True)
class Step:
    """From one cell to the next: the gain in per cent and the p-value of the paired permutation test."""

    gain: float
    p: float
    facts: int
    """Pairs of outcomes, each fact as often as it was asked."""

    @property
    def is_significant(self) -> bool:
        """Whether p is below the paper's line."""
        return self.p < LINE


def step(before: RunGroup, after: RunGroup, metric: Metric) -> Step | None:
    """The step between two cells, all relations together; None if they have no relation, or no seed, in common.

    It is the micro difference of `compare_outcomes`, without the intervals, which take long on many facts.
    """
    a, b = _by_seed(after), _by_seed(before)
    if not set(before.relations) & set(after.relations):
        return None
    if isinstance(a, dict) and isinstance(b, dict) and not a.keys() & b.keys():
        return None
    pairs = pair_outcomes(a, b).pairs
    differences: dict[tuple[str, ...], list[float]] = {}
    for pair in pairs:
        differences.setdefault(pair.fact, []).append(value_of(pair.a, metric) - value_of(pair.b, metric))
    sums = np.array([sum(of_fact) for of_fact in differences.values()])
    sums[np.abs(sums) < 1e-12] = 0.0  # a sum of seeds that cancel out but for its last bits
    test = permutation_test(sums)
    return Step(scale_of(metric) * float(sums.sum()) / len(pairs), test.p, len(pairs))


def _by_seed(group: RunGroup) -> Outcomes:
    """A group with one seed stands beside every seed of the other."""
    found = group.outcomes
    return found if len(found) > 1 else next(iter(found.values()))
