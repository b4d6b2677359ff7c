"""What training minimises: the loss of some facts under a mixture, by gradient or by EM."""

import time
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.answers.encode import EncodedFacts
from askwell.answers.strategy import Answers


class Loss(NamedTuple):
    """The loss of some facts."""

    to_minimise: Float[Tensor, ""]
    """A sum over facts whose gradient is the step to take."""
    negative_log_likelihood: float
    """The sum over facts of -log p(y | x, r)."""
    posteriors: Float[Tensor, " prompts"]
    """The sum over facts of the posterior over prompts."""


class Objective:
    """The loss of training facts; whatever does not change during training is computed once."""

    def __init__(self, answers: Answers, encoded: EncodedFacts, method: Literal["gradient", "em"]) -> None:
        self._answers, self._encoded, self._method = answers, encoded, method
        self._prompts = prompts = answers.prompts
        self.facts_at_once = answers.facts_at_once(encoded)
        tunes_prompts = any(part.requires_grad for part in (prompts.vectors, *prompts.deltas.parameters()))
        self._known = None if tunes_prompts else answers.read_once(encoded)

    def loss(self, rows: Int[Tensor, " facts"]) -> Loss:
        """Return the loss of the facts in these rows, without those that all prompts show as examples."""
        if self._prompts.examples:  # encoding leaves such facts out, but prompts can be dropped later
            rows = rows[~self._prompts.is_own_example(self._encoded.xs, rows)]
            if not len(rows):
                nothing = torch.zeros((), device=rows.device, requires_grad=True)
                return Loss(nothing, 0.0, torch.zeros_like(self._prompts.weight_logits))
        known = None if self._known is None else (self._known[0][rows], self._known[1][rows])
        found = self._answers.likelihood(self._encoded, rows, known)
        negative = -float(found.total.detach().sum())
        if found.joint is None:
            return Loss(-found.total.sum(), negative, torch.zeros_like(self._prompts.weight_logits))
        posteriors = found.joint.detach().softmax(1)
        if self._method == "gradient" or found.by_prompt is None:
            to_minimise = -found.total.sum()
        else:
            # Weights whose M step has a closed form take it once a stretch; see loop.py.
            expected = found.by_prompt if self._prompts.weighting.closed_form else found.joint
            to_minimise = -torch.where(posteriors > 0, posteriors * expected, 0.0).sum()
        return Loss(to_minimise, negative, posteriors.sum(0))

    def seconds_of_pair(self, pairs: int = 64) -> float:
        """Measure how long training on one (fact, prompt) pair takes, on about this many; nothing is changed."""
        prompts = len(self._prompts.prompts)
        few = self._encoded.rows[: max(1, pairs // prompts)]
        seconds = []
        for _ in range(3):  # the first is slower, since it allocates memory
            began = time.perf_counter()
            for chunk in few.split(self.facts_at_once):
                self.loss(chunk).to_minimise.backward()
            seconds.append(time.perf_counter() - began)
        for parameter in self._prompts.parameters():
            parameter.grad = None
        return min(seconds) / (len(few) * prompts)
