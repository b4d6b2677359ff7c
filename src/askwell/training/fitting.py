"""The few numbers that weigh prompts and lengths of answers, fitted to convergence.

The LM reads some train facts once, with the prompts as they are. Given what it says, the weights of the prompts and
their temperatures, or the lengths of answers, are fitted by L-BFGS, which takes a fraction of a second. The gradient
steps of a run are too few to take these numbers to where they belong. Weights are fitted before the prompts are tuned,
so that fewer prompts have to be; lengths are fitted afterwards, since reading how sure the LM is of every length at
every step would cost more than all the rest. They are fitted with hard prompts: tuned ones are surer of the facts that
they were tuned on than of any others.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from askwell.answers.encode import EncodedFacts
from askwell.answers.strategy import Answers, sum_dtype
from askwell.specs.training_spec import TrainingSpec

FITTED_PAIRS = 3200
"""The most (fact, prompt) pairs that are read; without gradients, they cost about a third as much as in training."""
LEAST_FACTS = 32
_PRIOR = 0.5
"""How strongly the weights are held at their start: half the squared change counts as the loss of this many facts.
Without it, sixteen weights fitted to a hundred facts are worse on others than equal ones."""
_PRIOR_OF_LENGTHS = 0.1
LIGHT = 0.25
"""Prompts that weigh less than this fraction of an equal share are dropped after the fit. On a real LM two of seventeen
mined prompts can be all that a mixture needs, and the others would cost eight times as much as these."""
_STEPS = 100


def facts_to_fit(prompts: int) -> int:
    """Return how many train facts are read, at most."""
    return max(LEAST_FACTS, FITTED_PAIRS // prompts)


def fits_weights(answers: Answers, spec: TrainingSpec) -> bool:
    """Tell whether weights are fitted before the prompts are tuned."""
    tuned = any(parameter.requires_grad for parameter in answers.prompts.weighting.parameters())
    several = len(answers.prompts.prompts) > 1
    may_be = spec.recipe != "paper" and spec.anneal == 1  # copies that are annealed are to begin together
    return spec.fit_weights and may_be and tuned and several and answers.can_read_once


def fit_weights(answers: Answers, encoded: EncodedFacts) -> float:
    """Fit the weights of the prompts and their temperatures to facts, as far as they are tuned, and drop prompts that
    weigh next to nothing for any x; return the facts' mean -log p(y | x, r)."""
    prompts = answers.prompts
    reached = _fit(answers, encoded, prompts.weighting, _PRIOR)
    if prompts.weight_logits.requires_grad and not prompts.weighting.depends_on_x:
        prompts.drop_prompts(LIGHT / len(prompts.prompts))
    return reached


def fits_lengths(answers: Answers, spec: TrainingSpec) -> bool:
    """Tell whether the lengths of answers are fitted after the prompts were tuned."""
    return (
        spec.tune_lengths and spec.recipe != "paper" and answers.prompts.lengths is not None and answers.can_read_once
    )


def fit_lengths(answers: Answers, encoded: EncodedFacts) -> float:
    """Fit how the lengths of a masked LM's answers depend on x; return the facts' mean -log p(y | x, r)."""
    lengths = answers.prompts.lengths
    if lengths is None:
        raise ValueError("the answers' lengths are not learned")
    lengths.requires_grad_(True)
    reached = _fit(answers, encoded, lengths, _PRIOR_OF_LENGTHS)
    lengths.requires_grad_(False)
    return reached


def _fit(answers: Answers, encoded: EncodedFacts, module: nn.Module, prior: float) -> float:
    """Fit what is tuned of a module, with all else as it is; return the facts' mean -log p(y | x, r)."""
    fitted = [parameter for parameter in module.parameters() if parameter.requires_grad]
    known, dtype = answers.read_once(encoded), fitted[0].dtype
    module.to(sum_dtype(answers.prompts.lm))
    start = [parameter.detach().clone() for parameter in fitted]

    def loss() -> Float[Tensor, ""]:
        return -answers.likelihood(encoded, encoded.rows, known).total.mean()

    def change() -> Float[Tensor, ""]:
        # The logit of a dropped prompt stays -inf.
        each = [(now - before)[before.isfinite()].square().sum() for now, before in zip(fitted, start, strict=True)]
        return torch.stack(each).sum() / 2

    optimizer = torch.optim.LBFGS(fitted, max_iter=_STEPS, line_search_fn="strong_wolfe")

    def closure() -> Float[Tensor, ""]:
        optimizer.zero_grad()
        total = loss() + prior * change() / len(encoded)
        total.backward()
        return total

    optimizer.step(closure)
    reached = float(loss().detach())
    for parameter in fitted:
        parameter.grad = None
    module.to(dtype)
    return reached
