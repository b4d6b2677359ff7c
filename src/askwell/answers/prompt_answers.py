"""What each prompt alone answers, noted while the prompts are combined."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.lms.frozen import FrozenLM
from askwell.prompts.prompt_set import PromptSet


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

    @classmethod
    def joined(cls, parts: "Sequence[PromptAnswers]") -> "PromptAnswers":
        """Concatenate the answers to several groups of x's."""
        columns = zip(*((part.best, part.of_mixture, part.weights, part.divergences) for part in parts), strict=True)
        return cls(parts[0].prompts, *map(np.concatenate, columns))

    def of(self, rows: list[int]) -> "PromptAnswers":
        """Return the answers to the x's in these rows."""
        return PromptAnswers(
            self.prompts, self.best[rows], self.of_mixture[rows], self.weights[rows], self.divergences[rows]
        )


class BatchNotes:
    """Notes the distributions of the prompts for a batch of facts, of which all answers are listed.

    Best answers are the best among those allowed; divergences are those of the whole distributions.
    """

    def __init__(
        self, prompts: PromptSet, fact_count: int, answers: int, allowed: Int[Tensor, " candidates"] | None
    ) -> None:
        self.prompts = tuple(prompts.tuned.kept.tolist())
        device, count = prompts.lm.device, len(self.prompts)
        self._allowed = allowed
        self._column = torch.full((len(prompts.prompts),), -1, device=device)
        self._column[list(self.prompts)] = torch.arange(count, device=device)
        nothing = torch.zeros(0, dtype=sum_dtype(prompts.lm), device=device)
        self._best = nothing.new_zeros(fact_count, count, dtype=torch.long)
        self._weights = nothing.new_zeros(fact_count, count)
        self._mean = nothing.new_zeros(fact_count, answers)
        self._mean_of_entropies = nothing.new_zeros(fact_count)

    def note(
        self,
        rows: Int[Tensor, " pairs"],
        prompts: Int[Tensor, " pairs"],
        weights: Float[Tensor, " pairs"],
        probs: Float[Tensor, "pairs answers"],
    ) -> None:
        """Note the distributions of some (fact, prompt) pairs."""
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

    def answers(self, log_probs: Float[Tensor, "facts answers"]) -> PromptAnswers:
        """Return what was noted, given the mixture's distribution over the answers that are ranked."""
        of_mixture = log_probs.argmax(1) if self._allowed is None else self._allowed[log_probs.argmax(1)]
        # Rounding can leave a tiny negative number where all prompts give the same distribution.
        divergences = (torch.special.entr(self._mean).sum(1) - self._mean_of_entropies).clamp(min=0)
        columns = (self._best, of_mixture, self._weights, divergences)
        return PromptAnswers(self.prompts, *(column.cpu().numpy() for column in columns))


def best_of_rows(values: Float[Tensor, "xs answers"], allowed: Int[Tensor, " candidates"] | None) -> Int[Tensor, " xs"]:
    """Return the number of the best answer of each row; ties go to the first, as everywhere."""
    return values.argmax(1) if allowed is None else allowed[values[:, allowed].argmax(1)]


def sum_dtype(lm: FrozenLM) -> torch.dtype:
    """Return double precision, if the device has it."""
    return torch.float32 if lm.device.type == "mps" else torch.float64
