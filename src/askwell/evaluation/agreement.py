"""Whether the prompts of a mixture agree: what each of them answers, and whether agreement separates right answers from
wrong ones.

Fractions are from 0 to 1. Agreement is not truth: all prompts can be wrong together.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from askwell.errors import BadOption
from askwell.evaluation.abstention import risk_coverage
from askwell.mixture.mixture import Mixture


@dataclass(frozen=True)
class PromptAnswers:
    """The best answers of a mixture's prompts to some x's, as arrays to compute with; dropped prompts have none."""

    prompts: tuple[int, ...]
    """The numbers of the prompts that were not dropped."""
    best: Int[np.ndarray, "xs prompts"]
    """The number of each prompt's best answer."""
    of_mixture: Int[np.ndarray, " xs"]
    """The number of the mixture's best answer."""
    weights: Float[np.ndarray, "xs prompts"]
    """p(t | r), or p(t | r, x) of a data-dependent mixture; the exponents of a product."""
    divergences: Float[np.ndarray, " xs"]
    """The Jensen–Shannon divergence of the prompts' distributions, by these weights, in nats: the entropy of their
    mean minus the mean of their entropies. It is 0 if all are the same."""


class PromptObserver:
    """Notes what each prompt alone answers while `distributions.log_probs` combines the prompts.

    Best answers are the best among the candidates; divergences are those of the whole distributions.
    """

    def __init__(self, mixture: Mixture, answers: int, allowed: Int[Tensor, " candidates"] | None) -> None:
        self.prompts = tuple((mixture.weight_logits > -torch.inf).nonzero()[:, 0].tolist())
        self._allowed, self._answers = allowed, answers
        self._column = torch.full((len(mixture.prompts),), -1, device=mixture.lm.device)
        self._column[list(self.prompts)] = torch.arange(len(self.prompts), device=mixture.lm.device)
        self._nothing = torch.zeros(0, dtype=sum_dtype(mixture), device=mixture.lm.device)
        self._parts: list[tuple[Tensor, ...]] = []

    def begin(self, facts: int) -> None:
        """Prepares for the next facts that are asked together."""
        self._best = self._nothing.new_zeros(facts, len(self.prompts), dtype=torch.long)
        self._weights = self._nothing.new_zeros(facts, len(self.prompts))
        self._mean = self._nothing.new_zeros(facts, self._answers)
        self._mean_of_entropies = self._nothing.new_zeros(facts)

    def __call__(
        self,
        rows: Int[Tensor, " pairs"],
        prompts: Int[Tensor, " pairs"],
        weights: Float[Tensor, " pairs"],
        probs: Float[Tensor, "pairs answers"],
    ) -> None:
        """Takes the distributions of some (fact, prompt) pairs."""
        columns = self._column[prompts]
        if (columns < 0).any():  # a product also asks dropped prompts
            return
        weights = weights.to(self._mean.dtype)
        self._best[rows, columns] = best_of_rows(probs, self._allowed)
        self._weights[rows, columns] = weights
        self._mean_of_entropies.index_add_(0, rows, weights * torch.special.entr(probs.to(weights.dtype)).sum(1))
        # Row by row: index_add_ would write out an index as large as the probabilities.
        for row, weight, of_row in zip(rows.tolist(), weights.tolist(), probs, strict=True):
            self._mean[row].add_(of_row, alpha=weight)

    def end(self, log_probs: Float[Tensor, "facts answers"]) -> None:
        """Takes the mixture's distribution over the answers that are ranked, and keeps what was noted."""
        of_mixture = log_probs.argmax(1) if self._allowed is None else self._allowed[log_probs.argmax(1)]
        # Rounding can leave a tiny negative number where all prompts give the same distribution.
        divergences = (torch.special.entr(self._mean).sum(1) - self._mean_of_entropies).clamp(min=0)
        self._parts.append((self._best, of_mixture, self._weights, divergences))
        del self._mean

    def answers(self, rows: list[int]) -> PromptAnswers:
        """What was noted about some of the facts, one for each x."""
        return PromptAnswers(self.prompts, *(column[rows] for column in self._columns()))

    @property
    def weights(self) -> Float[np.ndarray, "facts prompts"]:
        """The weights of the prompts for every fact."""
        return self._columns()[2]

    def _columns(self) -> list[np.ndarray]:
        return [torch.cat(column).cpu().numpy() for column in zip(*self._parts, strict=True)]


def best_of_rows(values: Float[Tensor, "xs answers"], allowed: Int[Tensor, " candidates"] | None) -> Int[Tensor, " xs"]:
    """The number of the best answer of each row; ties go to the first, as everywhere."""
    return values.argmax(1) if allowed is None else allowed[values[:, allowed].argmax(1)]


def sum_dtype(mixture: Mixture) -> torch.dtype:
    """Double precision, if the device has it."""
    return torch.float32 if mixture.lm.device.type == "mps" else torch.float64


@dataclass(frozen=True)
class Agreement:
    """How often the prompts of a mixture have the same best answer, as a mean over questions."""

    questions: int
    pairs: float
    """The fraction of all pairs of prompts that give the same answer."""
    weighted: float | None
    """The same with each pair weighted by the product of its weights; None if one prompt has all the weight."""
    all_agree: float
    """The fraction of questions to which all prompts give the same answer."""
    with_mixture: float
    """The weight of the prompts that give the same answer as the mixture."""


@dataclass(frozen=True)
class Consistency:
    """How far the prompts of a mixture agree: hard prompts that are paraphrases of each other, or soft ones."""

    prompts: int
    all: Agreement
    right: Agreement | None
    """Among questions that the mixture answers right; None if there are none."""


def consistency(answers: PromptAnswers, right: Bool[np.ndarray, " xs"]) -> Consistency:
    """How far the prompts agree on all x's, and on those that the mixture answers right."""
    if len(answers.prompts) < 2:
        raise BadOption("consistency needs at least two prompts, and there is only one")
    return Consistency(
        prompts=len(answers.prompts),
        all=_agreement(answers.best, answers.weights, answers.of_mixture),
        right=_agreement(answers.best[right], answers.weights[right], answers.of_mixture[right])
        if right.any()
        else None,
    )


def _agreement(
    best: Int[np.ndarray, "xs prompts"], weights: Float[np.ndarray, "xs prompts"], of_mixture: Int[np.ndarray, " xs"]
) -> Agreement:
    prompts = best.shape[1]
    pairs, weighted, all_agree = [], [], []
    for answers, shares in zip(best, weights / weights.sum(1, keepdims=True), strict=True):
        which = np.unique(answers, return_inverse=True)[1]
        counts, totals = np.bincount(which), np.bincount(which, weights=shares)
        pairs.append((counts * (counts - 1)).sum() / (prompts * (prompts - 1)))
        alone = (shares**2).sum()  # pairs of a prompt with itself do not count
        if alone < 1 - 1e-12:
            weighted.append(((totals**2).sum() - alone) / (1 - alone))
        all_agree.append(len(counts) == 1)
    with_mixture = (weights * (best == of_mixture[:, None])).sum(1) / weights.sum(1)
    return Agreement(
        questions=len(best),
        pairs=float(np.mean(pairs)),
        weighted=float(np.mean(weighted)) if weighted else None,
        all_agree=float(np.mean(all_agree)),
        with_mixture=float(with_mixture.mean()),
    )


@dataclass(frozen=True)
class SignalAreas:
    """The area under the risk–coverage curve of several signals on the same questions: lower is better."""

    questions: int
    areas: dict[str, float]
    best_possible: float
    """If all right answers came before all wrong ones."""
    no_signal: float
    """If answers came in random order: the fraction of wrong ones."""


def disagreement(answers: PromptAnswers) -> Float[np.ndarray, " xs"]:
    """For each x the weight of the prompts whose best answer is not the mixture's, from 0 to 1."""
    same = answers.best == answers.of_mixture[:, None]
    return 1 - (answers.weights * same).sum(1) / answers.weights.sum(1)


def signals_of(
    confidences: Float[np.ndarray, " questions"], answers: PromptAnswers
) -> dict[str, Float[np.ndarray, " questions"]]:
    """Three signals of confidence: the probability of the answer, and two measures of the prompts' agreement."""
    return {
        "probability": confidences,
        "agreement": 1 - disagreement(answers),
        "divergence": -answers.divergences,
    }


def compare_signals(
    signals: Mapping[str, Float[np.ndarray, " questions"]], right: Bool[np.ndarray, " questions"]
) -> SignalAreas:
    """The area of each signal, with the best possible area and that without a signal."""
    return SignalAreas(
        questions=len(right),
        areas={name: risk_coverage(values, right).area for name, values in signals.items()},
        best_possible=risk_coverage(right.astype(np.float64), right).area,
        no_signal=float((~right).mean()),
    )
