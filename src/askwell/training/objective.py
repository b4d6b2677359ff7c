"""What training minimises: the loss of some facts under a mixture, by gradient or by EM."""

import time
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.mixture import distributions
from askwell.mixture.candidates import CandidateScorer
from askwell.mixture.encode import EncodedFacts
from askwell.mixture.mixture import Mixture


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

    def __init__(
        self,
        mixture: Mixture,
        facts: EncodedFacts,
        method: Literal["gradient", "em"],
        scorer: CandidateScorer | None = None,
    ) -> None:
        self._mixture, self._facts, self._method, self._scorer = mixture, facts, method, scorer
        self.facts_at_once = distributions.facts_at_once(mixture, facts)
        self._asked_once = None
        if scorer is not None:
            golds = [scorer.number_of(fact.y) for fact in facts.facts]
            self._golds = torch.tensor(golds, device=mixture.lm.device)
            self.facts_at_once = max(1, self.facts_at_once // len(scorer.labels))
            return
        tunes_prompts = any(part.requires_grad for part in (mixture.vectors, *mixture.deltas.parameters()))
        if not tunes_prompts and mixture.spec.combine == "mixture":
            with torch.no_grad():
                chunks = torch.arange(len(facts), device=mixture.lm.device).split(self.facts_at_once)
                parts = [self._ask(chunk) for chunk in chunks]
            self._asked_once = torch.cat([gold for gold, _ in parts]), torch.cat([log_p_x for _, log_p_x in parts])

    def loss(self, facts: Int[Tensor, " facts"]) -> Loss:
        """The loss of the facts of these numbers, without those that all prompts show as examples."""
        if self._mixture.examples:  # encoding leaves such facts out, but prompts can be dropped later
            facts = facts[~self._mixture.is_own_example(self._facts.xs, facts)]
            if not len(facts):
                nothing = torch.zeros((), device=facts.device, requires_grad=True)
                return Loss(nothing, 0.0, torch.zeros_like(self._mixture.weight_logits))
        if self._scorer is not None:
            return self._loss_among_candidates(self._scorer, facts)
        if self._mixture.spec.combine == "product":
            return self._product_loss(facts)
        gold, log_p_x = self._ask(facts) if self._asked_once is None else [part[facts] for part in self._asked_once]
        log_weights = self._mixture.log_weights_for(self._facts.xs, facts, log_p_x)
        joint = log_weights + gold
        log_likelihood = joint.logsumexp(1)
        posteriors = joint.detach().softmax(1)
        if self._method == "gradient":
            to_minimise = -log_likelihood.sum()
        else:
            # Weights whose M step has a closed form take it once a stretch; see loop.py.
            expected = gold if self._mixture.weighting.closed_form else joint
            to_minimise = -torch.where(posteriors > 0, posteriors * expected, 0.0).sum()
        return Loss(to_minimise, -float(log_likelihood.detach().sum()), posteriors.sum(0))

    def seconds_of_pair(self, pairs: int = 64) -> float:
        """Measure how long training on one (fact, prompt) pair takes, on about this many; nothing is changed."""
        prompts = len(self._mixture.prompts)
        few = torch.arange(min(len(self._facts), max(1, pairs // prompts)), device=self._mixture.lm.device)
        seconds = []
        for _ in range(3):  # the first is slower, since it allocates memory
            began = time.perf_counter()
            for chunk in few.split(self.facts_at_once):
                self.loss(chunk).to_minimise.backward()
            seconds.append(time.perf_counter() - began)
        for parameter in self._mixture.parameters():
            parameter.grad = None
        return min(seconds) / (len(few) * prompts)

    def _ask(self, facts: Int[Tensor, " facts"]) -> tuple[Tensor, Tensor]:
        """log p(y | t, x) and, if it is needed, log p(x | t)."""
        mixture = self._mixture
        gold = distributions.fact_log_probs(mixture, self._facts, facts)
        return gold, distributions.log_p_x(
            mixture, self._facts.xs, facts
        ) if mixture.weighting.reads_x else gold.detach()

    def _loss_among_candidates(self, scorer: CandidateScorer, facts: Int[Tensor, " facts"]) -> Loss:
        """Classification: the log-probability of the right label, normalised over all labels."""
        mixture, xs = self._mixture, self._facts.xs
        log_weights = mixture.log_weights_for(xs, facts)
        by_prompt = scorer.by_prompt(xs, facts)
        golds = self._golds[facts, None]
        log_likelihood = scorer.combine(by_prompt, log_weights).log_softmax(1).gather(1, golds)[:, 0]
        of_gold = by_prompt.gather(2, golds[:, None].expand(-1, by_prompt.shape[1], -1))[..., 0]
        posteriors = (log_weights + of_gold).detach().softmax(1)
        return Loss(-log_likelihood.sum(), -float(log_likelihood.detach().sum()), posteriors.sum(0))

    def _product_loss(self, facts: Int[Tensor, " facts"]) -> Loss:
        log_likelihood = distributions.log_likelihood(self._mixture, self._facts, facts)
        no_posteriors = torch.zeros(len(self._mixture.prompts), device=log_likelihood.device)
        return Loss(-log_likelihood.sum(), -float(log_likelihood.detach().sum()), no_posteriors)
