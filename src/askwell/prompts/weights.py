"""How much each prompt of a mixture weighs: p(t | r), the same for every x, or p(t | r, x)."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from askwell.data.templates import Template
from askwell.errors import BadOption
from askwell.prompts.representation import DIRECTIONS
from askwell.specs.mixture_spec import MixtureSpec, WeightingName

Signal = Literal["x", "answers", "kind"]
"""What can speak for a prompt, given x: log p(x | t), for which the LM reads every question once more, how certain the
prompt is of its answer, or what kind of x it is, f(x), for which the LM reads x alone, once."""
Evidence = Float[Tensor, "facts each *signals"]
"""What a weighting reads of each fact: a number for each prompt, several of them on a further axis, or f(x)."""


class Weighting(nn.Module):
    """A way to weigh prompts. To add one, write a subclass, a row of WEIGHTINGS and a name in `WeightingName`.

    Parameters besides `logits` control how the weights depend on x; --no-tune-temperature freezes them.
    """

    reads: ClassVar[tuple[Signal, ...]]
    """What `forward` needs to know of each prompt for each fact."""

    def __init__(self, logits: Float[Tensor, " prompts"]) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)
        """log p(t | r) up to a constant; -inf for a prompt that was dropped."""

    def forward(self, evidence: Evidence | None, count: int) -> Float[Tensor, "facts prompts"]:
        """Return the log-weight of each prompt for each of this many facts."""
        raise NotImplementedError  # abstract: each class that is used has its own

    @property
    def depends_on_x(self) -> bool:
        """Whether a prompt can weigh more for one x than for another."""
        return bool(self.reads)

    @property
    def closed_form(self) -> bool:
        """Whether the mean posterior over prompts is the best p(t | r), which EM then uses without a gradient; if not,
        EM also takes gradient steps on log p(t | r, x)."""
        return not self.depends_on_x

    @property
    def temperature(self) -> float | None:
        """T: how little the weights depend on x; None if there is no temperature."""
        return None


class StaticWeights(Weighting):
    """p(t | r) = softmax(logits), regardless of x."""

    reads = ()

    def forward(self, evidence: Evidence | None, count: int) -> Float[Tensor, "facts prompts"]:
        """Return log p(t | r), repeated for each fact."""
        del evidence
        return self.logits.log_softmax(0).expand(count, -1)


class DataDependentWeights(Weighting):
    """p(t | r, x) ∝ p(t | r) p(x | t)^(1/T): a prompt weighs more if it finds x itself probable."""

    reads = ("x",)

    def __init__(self, logits: Float[Tensor, " prompts"]) -> None:
        super().__init__(logits)
        of_signals = () if len(self.reads) == 1 else (len(self.reads),)
        self.log_temperature = nn.Parameter(torch.zeros(of_signals, device=logits.device, dtype=logits.dtype))

    def forward(self, evidence: Evidence | None, count: int) -> Float[Tensor, "facts prompts"]:
        """Return log p(t | r, x) from the log of what speaks for each prompt."""
        if evidence is None or len(evidence) != count:
            raise ValueError("weights that depend on x need to know every fact's x")
        scaled = evidence * (-self.log_temperature).exp()
        return (self.logits.log_softmax(0) + (scaled if scaled.dim() == 2 else scaled.sum(2))).log_softmax(1)

    @property
    def temperature(self) -> float | None:
        """T: how little the weights depend on x; None if there are several."""
        return float(self.log_temperature.detach().exp()) if self.log_temperature.dim() == 0 else None


class CertaintyWeights(DataDependentWeights):
    """p(t | r, x) ∝ p(t | r) exp(-H/T), H being the entropy of the prompt's own answers: one that fits x is certain.

    No gradient goes through H: prompts are tuned to be right, not to be certain.
    """

    reads = ("answers",)


class CombinedWeights(DataDependentWeights):
    """p(t | r, x) ∝ p(t | r) p(x | t)^(1/T) exp(-H/T'): a prompt weighs more if it fits x and is certain."""

    reads = ("x", "answers")


class GateWeights(Weighting):
    """p(t | r, x) ∝ p(t | r) exp(u · f(x)): each prompt has learned which x's it suits; with u = 0 it is static."""

    reads = ("kind",)

    def __init__(self, logits: Float[Tensor, " prompts"]) -> None:
        super().__init__(logits)
        self.gate = nn.Parameter(logits.new_zeros(len(logits), DIRECTIONS))

    def forward(self, evidence: Evidence | None, count: int) -> Float[Tensor, "facts prompts"]:
        """Return log p(t | r, x) from f(x)."""
        if evidence is None or len(evidence) != count:
            raise ValueError("a gate needs to know every fact's x")
        return (self.logits.log_softmax(0) + evidence.to(self.gate) @ self.gate.T).log_softmax(1)


WEIGHTINGS: dict[WeightingName, type[Weighting]] = {
    "static": StaticWeights,
    "data-dependent": DataDependentWeights,
    "certainty": CertaintyWeights,
    "combined": CombinedWeights,
    "gate": GateWeights,
}


def certainty_of(log_probs: Float[Tensor, "*rest answers"]) -> Float[Tensor, "*rest"]:
    """Return how certain distributions are: the negative of their entropy."""
    return -torch.special.entr(log_probs.detach().exp()).sum(-1)


def initial_weights(templates: Sequence[Template], spec: MixtureSpec) -> Float[Tensor, " prompts"]:
    """Return p(t | r) before tuning, for each copy of each template: uniform, or as given in the prompt file."""
    if spec.weights == "uniform":
        each = [1.0] * len(templates)
    else:
        without = [template.text for template in templates if template.weight is None]
        if without:
            raise BadOption(f"the weights of the prompt file are to be used, but {without[0]!r} has no weight in it")
        each = [template.weight or 0.0 for template in templates]
        if sum(each) == 0:
            raise BadOption("the weights of the prompt file are to be used, but all of them are 0")
    weights = torch.tensor([weight for weight in each for _ in range(spec.copies)], dtype=torch.float64)
    return weights / weights.sum()
