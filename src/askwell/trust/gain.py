"""The gain over a control: what is left of a score when the part that needs no knowledge is taken away."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from askwell.comparison import Metric, Unit, compare_outcomes
from askwell.comparison.metric import less_is_better, value_of
from askwell.comparison.pairs import Outcomes
from askwell.errors import BadOption, UserMistake

Average = Literal["micro", "macro"]


@dataclass(frozen=True)
class Gain:
    """By how much a run is better than a control on the same facts; P@1, P@10 and MRR are in per cent."""

    control: str
    metric: Metric
    average: Average
    unit: Unit
    facts: int
    """Facts that both answered."""
    only_run: int
    only_control: int
    score: float
    control_score: float
    gain: float
    """Above 0 where the run is better, for log-loss too."""
    low: float
    high: float
    confidence: float
    p: float
    """Of the paired permutation test."""

    def as_json(self) -> dict[str, float | int | str]:
        """All figures by name."""
        return asdict(self)


def gain_over(
    outcomes: Outcomes,
    control: Outcomes,
    *,
    name: str = "control",
    metric: Metric = "P@1",
    average: Average = "micro",
    unit: Unit = "fact",
    confidence: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
) -> Gain:
    """The gain over one control, with its bootstrap interval over units, on the facts that both answered.

    With few changed units the bootstrap is too sure (four wins and no loss would do). So the interval always holds 0
    unless the permutation test, at the same confidence, says that the gain is no chance.
    """
    if average not in ("micro", "macro"):
        raise BadOption(f"there is no average {average!r}: choose micro or macro")
    comparison = compare_outcomes(
        outcomes, control, metric=metric, unit=unit, confidence=confidence, resamples=resamples, seed=seed
    )
    found = comparison.micro if average == "micro" else comparison.macro
    gain, low, high = found.difference, found.low, found.high
    if less_is_better(metric):
        gain, low, high = -gain, -high, -low
    if found.p > 1 - confidence:
        low, high = min(low, 0.0), max(high, 0.0)
    return Gain(
        control=name,
        metric=metric,
        average=average,
        unit=unit,
        facts=comparison.facts,
        only_run=comparison.only_a,
        only_control=comparison.only_b,
        score=found.a,
        control_score=found.b,
        gain=gain,
        low=low,
        high=high,
        confidence=confidence,
        p=found.p,
    )


def best_control(controls: Mapping[str, Outcomes], *, metric: Metric = "P@1") -> str:
    """The name of the control with the best mean over the dev facts that all of them answered; of several, the first.

    Choose on dev and report on test: the best of several on test would be a matter of luck. A control with several
    seeds counts with the mean over them.
    """
    if not controls:
        raise UserMistake("there is no control to choose from")
    values = {name: _value_of_facts(outcomes, metric) for name, outcomes in controls.items()}
    shared = set.intersection(*({*of_control} for of_control in values.values()))
    if not shared:
        raise UserMistake(f"the controls {', '.join(controls)} have no dev fact in common")
    # Sorted, so that sums do not depend on the order of a set.
    means = {name: sum(of_control[fact] for fact in sorted(shared)) for name, of_control in values.items()}
    return min(means, key=means.__getitem__) if less_is_better(metric) else max(means, key=means.__getitem__)


def _value_of_facts(outcomes: Outcomes, metric: Metric) -> dict[tuple[str, str, str], float]:
    """The mean value of each fact over its lines and seeds."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for run in outcomes.values() if isinstance(outcomes, Mapping) else [outcomes]:
        for outcome in run:
            values.setdefault((outcome.relation, outcome.x, outcome.y), []).append(value_of(outcome, metric))
    return {fact: sum(of_fact) / len(of_fact) for fact, of_fact in values.items()}
