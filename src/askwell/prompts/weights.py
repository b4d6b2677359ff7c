"""How much each prompt of a mixture weighs: p(t | r), the same for every x, or p(t | r, x)."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from askwell.data.templates import Template
from askwell.errors import BadOption
from askwell.specs.mixture_spec import MixtureSpec, WeightingName


class Weighting(nn.Module):
    """A way to weigh prompts. To add one, write a subclass, a row of WEIGHTINGS and a name in `WeightingName`.

    Parameters besides `logits` control how the weights depend on x; --no-tune-temperature freezes them.
    """

    reads_x: ClassVar[bool]
    """Whether `forward` needs log p(x | t), for which the LM reads every question once more."""
    closed_form: ClassVar[bool]
    """Whether the mean posterior over prompts is the best p(t | r), which EM then uses without a gradient; if not, EM
    also takes gradient steps on log p(t | r, x)."""

    def __init__(self, logits: Float[Tensor, " prompts"]) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)
        """log p(t | r) up to a constant; -inf for a prompt that was dropped."""

    def forward(self, log_p_x: Float[Tensor, "facts prompts"] | None, count: int) -> Float[Tensor, "facts prompts"]:
        """Return the log-weight of each prompt for each of this many facts."""
        raise NotImplementedError  # abstract: each class that is used has its own

    @property
    def temperature(self) -> float | None:
        """T: how little the weights depend on x; None if there is no temperature."""
        return None


class StaticWeights(Weighting):
    """p(t | r) = softmax(logits), regardless of x."""

    reads_x = False
    closed_form = True

    def forward(self, log_p_x: Float[Tensor, "facts prompts"] | None, count: int) -> Float[Tensor, "facts prompts"]:
        """Return log p(t | r), repeated for each fact."""
        del log_p_x
        return self.logits.log_softmax(0).expand(count, -1)


class DataDependentWeights(Weighting):
    """p(t | r, x) ∝ p(t | r) p(x | t)^(1/T): a prompt weighs more if it finds x itself probable."""

    reads_x = True
    closed_form = False

    def __init__(self, logits: Float[Tensor, " prompts"]) -> None:
        super().__init__(logits)
        self.log_temperature = nn.Parameter(torch.zeros((), device=logits.device, dtype=logits.dtype))

    def forward(self, log_p_x: Float[Tensor, "facts prompts"] | None, count: int) -> Float[Tensor, "facts prompts"]:
        """Return log p(t | r, x)."""
        if log_p_x is None or len(log_p_x) != count:
            raise ValueError("data-dependent weights need log p(x | t) of every fact")
        return (self.logits.log_softmax(0) + log_p_x * (-self.log_temperature).exp()).log_softmax(1)

    @property
    def temperature(self) -> float:
        """T: how little the weights depend on x."""
        return float(self.log_temperature.detach().exp())


WEIGHTINGS: dict[WeightingName, type[Weighting]] = {"static": StaticWeights, "data-dependent": DataDependentWeights}


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
