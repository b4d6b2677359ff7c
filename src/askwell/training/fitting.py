"""The first stage of training a mixture: the few numbers that weigh prompts and lengths are fitted to convergence.

The LM reads some train facts once, with the prompts as they are. Given what it says, the weights of the prompts, their
temperatures and the lengths of answers are fitted by L-BFGS, which takes a fraction of a second. A run's gradient steps
are too few to take these numbers to where they belong.
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
"""How strongly the fitted numbers are held at their start: half the squared change counts as the loss of this many
facts. Without it, sixteen weights fitted to a hundred facts are worse on others than equal ones."""
_PRIOR_OF_LENGTHS = 0.1
LIGHT = 0.25
"""Prompts that weigh less than this fraction of an equal share are dropped after the fit. On a real LM two of seventeen
mined prompts can be all that a mixture needs, and the others would cost eight times as much as these."""
_STEPS = 100


def fits_first(answers: Answers, spec: TrainingSpec) -> bool:
    """Tell whether there is anything to fit before the prompts themselves are tuned."""
    return spec.fit_weights and spec.recipe != "paper" and answers.can_read_once and bool(_fitted(answers))


def facts_to_fit(prompts: int) -> int:
    """Return how many train facts are read, at most."""
    return max(LEAST_FACTS, FITTED_PAIRS // prompts)


def _fitted(answers: Answers) -> list[nn.Parameter]:
    """Return what is fitted: whatever is tuned of the weights and of the lengths, if it is more than one weight."""
    prompts = answers.prompts
    weighting = prompts.weighting.parameters() if len(prompts.prompts) > 1 else ()
    lengths = () if prompts.lengths is None else prompts.lengths.parameters()
    return [parameter for parameter in (*weighting, *lengths) if parameter.requires_grad]


def fit_weights(answers: Answers, encoded: EncodedFacts) -> float:
    """Fit the weights of the prompts, their temperatures and the lengths of answers to facts, with the prompts' vectors
    as they are, and drop prompts that weigh next to nothing for any x; return the facts' mean -log p(y | x, r)."""
    prompts, fitted = answers.prompts, _fitted(answers)
    known = answers.read_once(encoded)
    modules: list[nn.Module] = [prompts.weighting, *([] if prompts.lengths is None else [prompts.lengths])]
    dtype = prompts.weight_logits.dtype
    for module in modules:
        module.to(sum_dtype(prompts.lm))
    start = [parameter.detach().clone() for parameter in fitted]
    of_lengths = {id(parameter) for parameter in modules[-1].parameters()} if len(modules) > 1 else set()
    held = [_PRIOR_OF_LENGTHS if id(parameter) in of_lengths else _PRIOR for parameter in fitted]

    def loss() -> Float[Tensor, ""]:
        return -answers.likelihood(encoded, encoded.rows, known).total.mean()

    def change() -> Float[Tensor, ""]:
        squares = [
            weight * (now - before)[before.isfinite()].square().sum() / 2  # the logit of a dropped prompt stays -inf
            for now, before, weight in zip(fitted, start, held, strict=True)
        ]
        return torch.stack(squares).sum()

    optimizer = torch.optim.LBFGS(fitted, max_iter=_STEPS, line_search_fn="strong_wolfe")

    def closure() -> Float[Tensor, ""]:
        optimizer.zero_grad()
        total = loss() + change() / len(encoded)
        total.backward()
        return total

    optimizer.step(closure)
    reached = float(loss().detach())
    for parameter in fitted:
        parameter.grad = None
    for module in modules:
        module.to(dtype)
    if prompts.weight_logits.requires_grad and not prompts.weighting.depends_on_x:
        prompts.drop_prompts(LIGHT / len(prompts.prompts))
    return reached
