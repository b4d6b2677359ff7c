"""What each single prompt of a mixture answers to some x's, beside the mixture's own answer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.lms.assemble import Words, words_of
from askwell.mixture import Mixture
from askwell.mixture.candidates import Candidates

# x's × answers numbers in one table; three or four such tables are held at once, however many prompts there are.
_NUMBERS_AT_ONCE = 2**22


@dataclass(frozen=True)
class PromptAnswers:
    """The best answers of a mixture's prompts; prompts that were dropped are not among them."""

    prompts: tuple[int, ...]
    """The numbers of the prompts that were asked."""
    best: Int[np.ndarray, "xs prompts"]
    """The number of each prompt's best answer."""
    of_mixture: Int[np.ndarray, " xs"]
    """The number of the mixture's best answer."""
    weights: Float[np.ndarray, "xs prompts"]
    """p(t | r), or p(t | r, x) of a data-dependent mixture; the exponents of a product."""
    divergences: Float[np.ndarray, " xs"]
    """The Jensen–Shannon divergence of the prompts' distributions, by these weights, in nats: the entropy of their
    mean, less the mean of their entropies. It is 0 where all are the same."""


@torch.no_grad()
def prompt_answers(mixture: Mixture, xs: Sequence[str], *, candidates: Candidates | None = None) -> PromptAnswers:
    """The answers of every prompt to each x, which must all be askable.

    With candidates, best answers are the best among them; divergences are those of the whole distributions.
    """
    allowed = None if candidates is None else candidates.answers(mixture)[0]
    kept = (mixture.weight_logits > -torch.inf).nonzero()[:, 0].tolist()
    words = words_of(xs, mixture.lm.wording, mixture.lm.device)
    at_once = max(1, _NUMBERS_AT_ONCE // mixture.answer_space.count)
    parts = [
        _some(mixture, words, chosen, kept, allowed)
        for chosen in torch.arange(len(xs), device=mixture.lm.device).split(at_once)
    ]
    best, of_mixture, weights, divergences = (torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True))
    return PromptAnswers(tuple(kept), best, of_mixture, weights, divergences)


def _some(
    mixture: Mixture,
    words: Words,
    chosen: Int[Tensor, " xs"],
    kept: list[int],
    allowed: Int[Tensor, " candidates"] | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Best answers, the mixture's, weights and divergences; the prompts are asked one after the other."""
    log_p_x = mixture.log_p_x(words, chosen) if mixture.spec.data_dependent else None
    weights = mixture.log_weights(len(chosen), log_p_x).exp().double()[:, kept]
    mean = torch.zeros(len(chosen), mixture.answer_space.count, dtype=torch.float64, device=mixture.lm.device)
    mean_of_entropies = mean.new_zeros(len(chosen))
    best = []
    for column, prompt in enumerate(kept):
        log_probs = mixture.prompt_log_probs(words, chosen, prompt)
        best.append(_best(log_probs, allowed))
        probs = log_probs.double().exp_()
        mean += weights[:, column, None] * probs
        mean_of_entropies += weights[:, column] * torch.special.entr(probs).sum(1)
    of_mixture = mean if mixture.spec.combine == "mixture" else mixture.log_probs(words, chosen)
    # Rounding can leave a tiny negative number where all prompts say the same.
    divergences = (torch.special.entr(mean).sum(1) - mean_of_entropies).clamp(min=0)
    return torch.stack(best, 1), _best(of_mixture, allowed), weights, divergences


def _best(values: Float[Tensor, "xs answers"], allowed: Int[Tensor, " candidates"] | None) -> Int[Tensor, " xs"]:
    """The number of the best answer of each row; of equal ones the first, as everywhere."""
    return values.argmax(1) if allowed is None else allowed[values[:, allowed].argmax(1)]
