"""A score over several runs, as mean and spread: one seed alone may be luck."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev

from askwell.errors import BadOption


@dataclass(frozen=True)
class Spread:
    """Several values of the same score."""

    runs: int
    mean: float
    deviation: float | None
    """The standard deviation of a single run, with n - 1 in its denominator; None for one run."""
    low: float
    high: float

    def as_json(self) -> dict[str, float | int | None]:
        """All figures by name."""
        return asdict(self)


def spread_of(values: Sequence[float]) -> Spread:
    """The mean and spread of the values of some runs."""
    if not values:
        raise BadOption("no runs, no mean over them")
    deviation = stdev(values) if len(values) > 1 else None
    return Spread(len(values), fmean(values), deviation, min(values), max(values))


def spreads_of(scores: Sequence[Mapping[str, float]]) -> dict[str, Spread]:
    """The mean and spread of each score of some runs, under the names that all of them have."""
    names = [name for name in scores[0] if all(name in of_run for of_run in scores)] if scores else []
    if not names:
        raise BadOption("the runs have no score in common")
    return {name: spread_of([of_run[name] for of_run in scores]) for name in names}
