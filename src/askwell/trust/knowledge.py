"""Knowledge: what a run scores above the best that can be had without knowing anything."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from askwell.comparison import Metric, Unit
from askwell.comparison.metric import scale_of, value_of
from askwell.comparison.pairs import Outcomes
from askwell.errors import UserMistake
from askwell.trust.gain import Gain, best_control, gain_over


@dataclass(frozen=True)
class Answered:
    """What a control made of the dev and the test facts; several seeds are given as one list for each."""

    dev: Outcomes
    test: Outcomes


@dataclass(frozen=True)
class ControlScores:
    """The mean over all facts that were asked; P@1, P@10 and MRR are in per cent."""

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
        return self.gain.low > 0

    def as_json(self) -> dict[str, Any]:
        """All figures by name."""
        return {
            **self.gain.as_json(),
            "is_there": self.is_there,
            "controls": {name: {"dev": scores.dev, "test": scores.test} for name, scores in self.controls.items()},
        }


def knowledge(
    run: Outcomes,
    controls: Mapping[str, Answered],
    *,
    metric: Metric = "P@1",
    unit: Unit = "y",
    confidence: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
) -> Knowledge:
    """The gain of a run's test outcomes over the control that is best on dev, with its interval and p, over all facts.

    A unit of the bootstrap and of the permutation test is by default all facts of a relation with one y. What a
    tuned prompt learns without knowing anything is to prefer some ys, and then all facts with such a y are answered
    alike. If each fact counted as a witness of its own, of two LMs that know nothing the one whose favourite y is by
    luck more frequent in test would too often seem to know something.
    """
    if not controls:
        raise UserMistake("there is no control to hold the score against")
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
        name: ControlScores(dev=_mean(control.dev, metric), test=_mean(control.test, metric))
        for name, control in controls.items()
    }
    return Knowledge(gain, scores)


def _mean(outcomes: Outcomes, metric: Metric) -> float:
    runs = outcomes.values() if isinstance(outcomes, Mapping) else [outcomes]
    return scale_of(metric) * fmean(value_of(outcome, metric) for run in runs for outcome in run)
