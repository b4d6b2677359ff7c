"""From the rows that are read to log-probabilities, with as few passes over the vocabulary as possible."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

# Rows of logits that begin at multiples of so many numbers are written at twice the speed by a CPU's matrix product.
_ALIGNED = 16


def logits_of(
    hidden: Float[Tensor, "reads width"], output: Float[Tensor, "vocabulary width"], bias: Tensor | None
) -> Float[Tensor, "reads vocabulary"]:
    """Logits over the whole vocabulary, without a gradient."""
    with torch.no_grad():
        return _aligned_logits(hidden, output, bias)[:, : output.shape[0]]


def distributions_of(
    hidden: Float[Tensor, "reads width"],
    output: Float[Tensor, "vocabulary width"],
    bias: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Float[Tensor, "reads vocabulary"], Float[Tensor, " reads"]]:
    """Probabilities over the whole vocabulary and the log of the total that they were divided by, no gradients."""
    with torch.no_grad():
        logits = _aligned_logits(hidden, output, bias).to(dtype)
        probabilities, log_total = _probabilities(logits)
    return probabilities[:, : output.shape[0]], log_total


def log_probs_of(
    hidden: Float[Tensor, "reads width"],
    output: Float[Tensor, "vocabulary width"],
    bias: Tensor | None,
    tokens: Int[Tensor, " reads"],
    dtype: torch.dtype,
) -> tuple[Float[Tensor, " reads"], Float[Tensor, " reads"]]:
    """The log-probability of one token at each row, and the log of the total of all, which carries no gradient."""
    return _LogProbsOf.apply(hidden, output, bias, tokens, dtype)


class _LogProbsOf(torch.autograd.Function):
    """The distribution is kept in place of the logits, so that the backward pass is one product."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, output: Tensor, bias: Tensor | None, tokens: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        logits = _aligned_logits(hidden, output, bias).to(dtype)
        of_tokens = logits.gather(1, tokens[:, None])[:, 0]
        probabilities, log_total = _probabilities(logits)
        ctx.save_for_backward(probabilities.to(hidden.dtype), output, tokens)
        ctx.mark_non_differentiable(log_total)
        return of_tokens - log_total, log_total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        probabilities, output, tokens = ctx.saved_tensors
        of_hidden = (output[tokens] - torch.mm(probabilities[:, : output.shape[0]], output)) * gradients[0][:, None]
        return of_hidden.to(output.dtype), None, None, None, None


def _probabilities(logits: Tensor) -> tuple[Tensor, Tensor]:
    probabilities = logits.softmax(1)
    return probabilities, logits.amax(1) - probabilities.amax(
        1
    ).log()  # the largest probability is 1 / the sum of exp(logit - largest)


def _aligned_logits(hidden: Tensor, output: Tensor, bias: Tensor | None) -> Tensor:
    """Logits, and -inf in the columns that bring each row to an aligned length."""
    vocabulary = output.shape[0]
    logits = hidden.new_empty(hidden.shape[0], -(-vocabulary // _ALIGNED) * _ALIGNED)
    logits[:, vocabulary:] = -torch.inf
    if bias is None:
        torch.mm(hidden, output.T, out=logits[:, :vocabulary])
    else:
        torch.addmm(bias, hidden, output.T, out=logits[:, :vocabulary])
    return logits
