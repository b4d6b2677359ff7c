"""The product of experts over answers of any length: token by token, the prompts' distributions are multiplied, each
to the power of its weight, and normalised.

For answers of one token that is the product over answers. If answers end with different tokens after different prompts,
the end of the answer is one more event in the normalisation, shared by all prompts."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.errors import BadOption
from askwell.mixture.encode import EncodedFacts

if TYPE_CHECKING:
    from askwell.mixture.mixture import Mixture

# Log-probabilities that are held at once, for all prompts.
_NUMBERS_AT_ONCE = 2**26


def multiply(
    log_probs: Float[Tensor, "*rest prompts vocabulary"],
    log_end: Float[Tensor, "*rest prompts"] | None,
    exponents: Float[Tensor, " prompts"],
    *,
    one_end: bool,
) -> tuple[Float[Tensor, "*rest vocabulary"], Float[Tensor, "*rest"] | None, Float[Tensor, "*rest"]]:
    """The products of tokens and of the end, and the log of what they are to be divided by."""
    tokens = torch.einsum("...tv,t->...v", log_probs, exponents)
    log_total = tokens.logsumexp(-1)
    if log_end is None:
        return tokens, None, log_total
    end = torch.einsum("...t,t->...", log_end, exponents)
    return tokens, end, log_total if one_end else torch.logaddexp(log_total, end)


def product_log_likelihood(
    mixture: "Mixture", facts: EncodedFacts, chosen: Int[Tensor, " facts"]
) -> Float[Tensor, " facts"]:
    """log p(y | x, r) of the chosen facts' y in a product, with gradients into the weights alone."""
    check_one_form(mixture)
    answers, exponents = mixture.long_answers, mixture.weights
    with torch.no_grad():
        steps = [
            answers.steps(mixture.tuned, facts.xs, facts.ys, chosen, prompt) for prompt in range(len(mixture.prompts))
        ]
    by_prompt = torch.stack([step.log_probs for step in steps], dim=1)
    of_target = torch.stack([step.log_probs.gather(1, step.targets[:, None])[:, 0] for step in steps], dim=1)
    ends = None
    if not answers.fills_masks:
        ends = torch.stack([step.log_probs.gather(1, step.ends[:, None])[:, 0] for step in steps], dim=1)
    _, _, log_total = multiply(by_prompt, ends, exponents, one_end=answers.has_one_end)
    of_steps = of_target @ exponents - log_total
    total = of_steps.new_zeros(len(chosen)).index_add(0, steps[0].pairs, of_steps)
    log_lengths = facts.kind.lengths_on(mixture.lm)
    return total if log_lengths is None else total + answers.log_length(facts.ys, chosen, log_lengths)


def facts_at_once(mixture: "Mixture", facts: EncodedFacts) -> int:
    """How many facts can be trained on while all prompts' distributions are held."""
    steps = int(facts.ys.lengths.max()) + 1
    return max(1, _NUMBERS_AT_ONCE // (len(mixture.prompts) * steps * mixture.lm.vocabulary_size))


def check_one_form(mixture: "Mixture") -> None:
    """Refuses prompts that need y in different forms, whose tokens cannot be multiplied with each other."""
    if len(mixture.answer_space.places) > 1:
        raise BadOption(
            "a product of experts over answers of any length needs prompts that write y in one form, either after a "
            "space or glued to what comes before it: leave out the others, or take --answers one-token"
        )
