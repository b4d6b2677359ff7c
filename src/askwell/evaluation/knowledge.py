"""Knowledge: what a run scores above the best control, that is, above what can be scored without knowing anything."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import fmean

from askwell.errors import BadOption, UsageError
from askwell.evaluation.comparison import Outcomes, Unit, compare
from askwell.evaluation.controls import Controls
from askwell.evaluation.metrics import Average, Metric, metric_named


@dataclass(frozen=True)
class Gain:
    """By how much a run is better than a control on the same facts; scores are in the metric's unit."""

    control: str
    metric: str
    average: Average
    unit: Unit
    facts: int
    """Facts that both answered."""
    only_run: int
    only_control: int
    score: float
    control_score: float
    gain: float
    """Above 0 if the run is better, also for log-loss."""
    low: float | None
    """None, like `high`, if there is no interval, as for a single unit."""
    high: float | None
    confidence: float
    p: float
    """Of the paired permutation test."""


def gain_over(
    outcomes: Outcomes,
    control: Outcomes,
    *,
    name: str = "control",
    metric: str = "P@1",
    average: Average = "micro",
    unit: Unit = "fact",
    confidence: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
) -> Gain:
    """Compute the gain over one control, with its bootstrap interval over units, on the facts that both answered.

    With few changed units the bootstrap is overconfident (four wins and no loss suffice). So the interval always
    contains 0 unless the permutation test is significant at the same confidence.
    """
    if average not in ("micro", "macro"):
        raise BadOption(f"there is no average {average!r}: choose micro or macro")
    comparison = compare(
        outcomes, control, metric=metric, unit=unit, confidence=confidence, resamples=resamples, seed=seed
    )
    found = comparison.micro if average == "micro" else comparison.macro
    low, high = found.low, found.high
    sign = 1 if metric_named(metric).higher_is_better else -1
    gain = sign * found.difference
    if low is not None and high is not None:
        low, high = sorted((sign * low, sign * high))
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


def best_control(controls: Mapping[str, Outcomes], *, metric: str = "P@1") -> str:
    """Return the name of the control with the best mean over the dev facts that all answered; the first of equal ones.

    Choose on dev and report on test: the best of several on test would be a matter of luck. A control with several
    seeds counts with the mean over them.
    """
    if not controls:
        raise UsageError("there is no control to choose from")
    by = metric_named(metric)
    values = {name: _value_of_facts(outcomes, by) for name, outcomes in controls.items()}
    shared = set.intersection(*({*of_control} for of_control in values.values()))
    if not shared:
        raise UsageError(f"the controls {', '.join(controls)} have no dev fact in common")
    # Sorted, so that sums do not depend on the order of a set.
    means = {name: sum(of_control[fact] for fact in sorted(shared)) for name, of_control in values.items()}
    return (max if by.higher_is_better else min)(means, key=means.__getitem__)


def _value_of_facts(outcomes: Outcomes, metric: Metric) -> dict[tuple[str, str, str], float]:
    """Return the mean value of each fact over its lines and seeds."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for run in outcomes.values() if isinstance(outcomes, Mapping) else [outcomes]:
        for outcome in run:
            values.setdefault((outcome.relation, outcome.x, outcome.y), []).append(metric.value(outcome))
    return {fact: sum(of_fact) / len(of_fact) for fact, of_fact in values.items()}


@dataclass(frozen=True)
class Answered:
    """A control's outcomes on the dev and the test facts; with several seeds, one list for each."""

    dev: Outcomes
    test: Outcomes


@dataclass(frozen=True)
class ControlScores:
    """The mean over all facts that were asked; scores are in the metric's unit."""

    dev: float
    test: float


@dataclass(frozen=True)
class Knowledge:
    """The gain over the best control, and what each control scores."""

    gain: Gain
    """On test, over the control that is best on dev."""
    controls: dict[str, ControlScores]

    @property
    def best(self) -> str:
        """The control that is best on dev."""
        return self.gain.control

    @property
    def is_there(self) -> bool:
        """Whether the whole interval of the gain is above 0."""
        return self.gain.low is not None and self.gain.low > 0

    def figures(self) -> "KnowledgeFigures":
        """Return all figures, side by side."""
        return KnowledgeFigures(**asdict(self.gain), is_there=self.is_there, controls=self.controls)


@dataclass(frozen=True)
class KnowledgeFigures(Gain):
    """The gain over the best control, whether it is significant, and what each control scores."""

    is_there: bool
    controls: dict[str, ControlScores]


def knowledge(
    run: Outcomes,
    controls: Mapping[str, Answered],
    *,
    metric: str = "P@1",
    unit: Unit = "y",
    confidence: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
) -> Knowledge:
    """Compute the gain of a run over the control that is best on dev, on all test facts, with its interval and p.

    A unit of the bootstrap and of the permutation test is by default all facts of a relation with one y. What a
    tuned prompt learns without knowing anything is to prefer some ys, and then all facts with such a y are answered
    alike. If each fact counted as independent evidence, an LM that knows nothing would too often seem to know
    something, just because its favourite y happens to be frequent in test.
    """
    if not controls:
        raise UsageError("there is no control to compare the score with")
    by = metric_named(metric)
    best = best_control({name: control.dev for name, control in controls.items()}, metric=metric)
    gain = gain_over(
        run,
        controls[best].test,
        name=best,
        metric=metric,
        unit=unit,
        confidence=confidence,
        resamples=resamples,
        seed=seed,
    )
    scores = {
        name: ControlScores(dev=_mean(control.dev, by), test=_mean(control.test, by))
        for name, control in controls.items()
    }
    return Knowledge(gain, scores)


def _mean(outcomes: Outcomes, metric: Metric) -> float:
    runs = outcomes.values() if isinstance(outcomes, Mapping) else [outcomes]
    return metric.scale * fmean(metric.value(outcome) for run in runs for outcome in run)


def knowledge_over(run: Outcomes, controls: Controls) -> Knowledge | None:
    """Compute the gain over the best of a run's controls; None if no control has both dev and test outcomes."""
    answered = {
        name: Answered(dev=by_split["dev"], test=by_split["test"])
        for name, by_split in controls.controls.items()
        if {"dev", "test"} <= by_split.keys()
    }
    return knowledge(run, answered) if answered else None
