"""The disagreement of a mixture's prompts as a sign that an answer is wrong, held against the answer's probability."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Bool, Float

from askwell.trust.abstention import risk_coverage
from askwell.trust.prompt_answers import PromptAnswers


@dataclass(frozen=True)
class SignalAreas:
    """The area under the risk–coverage curve of several signals on the same questions: the smaller the better."""

    questions: int
    areas: dict[str, float]
    best_possible: float
    """If all right answers came before all wrong ones."""
    no_signal: float
    """If answers came in random order: the share of wrong ones."""

    def as_json(self) -> dict[str, float | int | dict[str, float]]:
        """All figures by name."""
        return asdict(self)


def disagreement(answers: PromptAnswers) -> Float[np.ndarray, " xs"]:
    """For each x the weight of the prompts whose best answer is not the mixture's, from 0 to 1."""
    same = answers.best == answers.of_mixture[:, None]
    return 1 - (answers.weights * same).sum(1) / answers.weights.sum(1)


def signals_of(
    confidences: Float[np.ndarray, " questions"], answers: PromptAnswers
) -> dict[str, Float[np.ndarray, " questions"]]:
    """Three signals that are larger for surer answers: the probability, and the prompts' agreement in two senses."""
    return {
        "probability": confidences,
        "agreement": 1 - disagreement(answers),
        "divergence": -answers.divergences,
    }


def compare_signals(
    signals: Mapping[str, Float[np.ndarray, " questions"]], right: Bool[np.ndarray, " questions"]
) -> SignalAreas:
    """The area of each signal, with the best possible one and that of no signal at all."""
    return SignalAreas(
        questions=len(right),
        areas={name: risk_coverage(values, right).area for name, values in signals.items()},
        best_possible=risk_coverage(right.astype(np.float64), right).area,
        no_signal=float((~right).mean()),
    )
