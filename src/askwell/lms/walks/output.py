"""From the rows that are read to log-probabilities, with as few passes over the vocabulary as possible."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

# Rows of logits that begin at multiples of this many numbers are written twice as fast by the BLAS of a CPU.
_ALIGNED = 16
# Where several tokens are read from a distribution, about this many logits are held at once: at least this many rows,
# since products with fewer rows are slow, and, without gradients, this many columns, which stay in the cache.
_LOGITS_AT_ONCE = 2**20
_ROWS_AT_ONCE = 128
_COLUMNS_AT_ONCE = 2048


def logits_of(
    hidden: Float[Tensor, "reads width"],
    output: Float[Tensor, "vocabulary width"],
    bias: Tensor | None,
    cap: float | None = None,
) -> Float[Tensor, "reads vocabulary"]:
    """Logit over the whole vocabulary, without a gradient."""
    with torch.no_grad():
        return _capped(_aligned_logits(hidden, output, bias), cap)[:, : output.shape[0]]


def distributions_of(
    hidden: Float[Tensor, "reads width"],
    output: Float[Tensor, "vocabulary width"],
    bias: Tensor | None,
    dtype: torch.dtype,
    cap: float | None = None,
) -> tuple[Float[Tensor, "reads vocabulary"], Float[Tensor, " reads"]]:
    """Return probabilities over the whole vocabulary and their log-normalisers, without gradients."""
    with torch.no_grad():
        logits = _capped(_aligned_logits(hidden, output, bias).to(dtype), cap)
        probabilities, log_total = _probabilities(logits)
    return probabilities[:, : output.shape[0]], log_total


def log_probs_of(
    hidden: Float[Tensor, "reads width"],
    output: Float[Tensor, "vocabulary width"],
    bias: Tensor | None,
    tokens: Int[Tensor, " reads"],
    dtype: torch.dtype,
    cap: float | None = None,
) -> tuple[Float[Tensor, " reads"], Float[Tensor, " reads"]]:
    """Return the log-probability of one token at each row, and the log-normaliser over all tokens, which carries no
    gradient."""
    return _LogProbsOf.apply(hidden, output, bias, tokens, dtype, cap)


class _LogProbsOf(torch.autograd.Function):
    """The distribution is kept instead of the logits, so that the backward pass is one product."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        output: Tensor,
        bias: Tensor | None,
        tokens: Tensor,
        dtype: torch.dtype,
        cap: float | None,
    ) -> tuple[Tensor, Tensor]:
        logits = _capped(_aligned_logits(hidden, output, bias).to(dtype), cap)
        of_tokens = logits.gather(1, tokens[:, None])[:, 0]
        probabilities, log_total = _probabilities(logits)
        of_cap = None
        if cap is not None:
            of_cap = _slope(of_tokens, cap).to(hidden.dtype)
            probabilities = probabilities * _slope(logits, cap)
        ctx.save_for_backward(probabilities.to(hidden.dtype), output, tokens, of_cap)
        ctx.mark_non_differentiable(log_total)
        return of_tokens - log_total, log_total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        probabilities, output, tokens, of_cap = ctx.saved_tensors
        of_tokens = output[tokens] if of_cap is None else output[tokens] * of_cap[:, None]
        of_hidden = (of_tokens - probabilities[:, : output.shape[0]] @ output) * gradients[0][:, None]
        return of_hidden.to(output.dtype), None, None, None, None, None


def several_log_probs_of(
    hidden: Float[Tensor, "reads width"],
    output: Float[Tensor, "vocabulary width"],
    bias: Tensor | None,
    reads: Int[Tensor, " targets"],
    tokens: Int[Tensor, " targets"],
    dtype: torch.dtype,
    cap: float | None = None,
) -> tuple[Float[Tensor, " targets"], Float[Tensor, " reads"]]:
    """Return the log-probability of tokens[i] at the row reads[i], in any number for each row, and the log of each
    row's total, which carries no gradient."""
    if not (torch.is_grad_enabled() and hidden.requires_grad):
        log_totals = _log_totals(hidden, output, bias, dtype, cap)
        of_tokens = torch.linalg.vecdot(hidden[reads], output[tokens]).to(dtype)
        of_tokens = _capped(of_tokens if bias is None else of_tokens + bias[tokens], cap)
        return of_tokens - log_totals[reads], log_totals
    return _SeveralLogProbsOf.apply(hidden, output, bias, reads, tokens, dtype, cap)


class _SeveralLogProbsOf(torch.autograd.Function):
    """Only the mean output embedding of each distribution is kept, which is all that the backward pass needs: no more
    logits are held than are processed at once."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        output: Tensor,
        bias: Tensor | None,
        reads: Tensor,
        tokens: Tensor,
        dtype: torch.dtype,
        cap: float | None,
    ) -> tuple[Tensor, Tensor]:
        vocabulary, order = output.shape[0], reads.argsort(stable=True)
        log_probs = torch.empty(len(reads), dtype=dtype, device=hidden.device)
        log_totals = torch.empty(len(hidden), dtype=dtype, device=hidden.device)
        mean_output = torch.empty_like(hidden)
        of_cap = None if cap is None else hidden.new_empty(len(reads))
        at_once = max(_ROWS_AT_ONCE, _LOGITS_AT_ONCE // vocabulary)
        ends = torch.searchsorted(
            reads[order], torch.arange(0, len(hidden) + at_once, at_once, device=reads.device)
        ).tolist()
        for number, start in enumerate(range(0, len(hidden), at_once)):
            some, targets = slice(start, start + at_once), order[ends[number] : ends[number + 1]]
            logits = _capped(_aligned_logits(hidden[some], output, bias).to(dtype), cap)
            of_targets = logits[reads[targets] - start, tokens[targets]]
            probabilities, log_totals[some] = _probabilities(logits)
            if of_cap is not None and cap is not None:
                of_cap[targets] = _slope(of_targets, cap).to(hidden.dtype)
                probabilities = probabilities * _slope(logits, cap)
            mean_output[some] = probabilities[:, :vocabulary].to(hidden.dtype) @ output
            log_probs[targets] = of_targets - log_totals[reads[targets]]
        ctx.save_for_backward(mean_output, output, reads, tokens, of_cap)
        ctx.mark_non_differentiable(log_totals)
        return log_probs, log_totals

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None, None, None]:
        mean_output, output, reads, tokens, of_cap = ctx.saved_tensors
        of_tokens = output[tokens] if of_cap is None else output[tokens] * of_cap[:, None]
        of_targets = (gradients[0].to(output.dtype))[:, None] * (of_tokens - mean_output[reads])
        return torch.zeros_like(mean_output).index_add_(0, reads, of_targets), None, None, None, None, None, None


@torch.no_grad()
def _log_totals(
    hidden: Float[Tensor, "reads width"],
    output: Float[Tensor, "vocabulary width"],
    bias: Tensor | None,
    dtype: torch.dtype,
    cap: float | None,
) -> Float[Tensor, " reads"]:
    """Return the log-normaliser of each row's distribution, computed over one part of the vocabulary at a time."""
    found = torch.empty(len(hidden), dtype=dtype, device=hidden.device)
    vocabulary, at_once = output.shape[0], max(_ROWS_AT_ONCE, _LOGITS_AT_ONCE // _COLUMNS_AT_ONCE)
    for start in range(0, len(hidden), at_once):
        some = hidden[start : start + at_once]
        parts = []
        for first in range(0, vocabulary, _COLUMNS_AT_ONCE):
            columns = slice(first, first + _COLUMNS_AT_ONCE)
            of_columns = None if bias is None else bias[columns]
            logits = _capped(functional.linear(some, output[columns], of_columns).to(dtype), cap)
            largest = logits.amax(1, keepdim=True)
            parts.append(logits.sub_(largest).exp_().sum(1).log_().add_(largest[:, 0]))
        found[start : start + at_once] = torch.stack(parts, 1).logsumexp(1)
    return found


def _capped(logits: Tensor, cap: float | None) -> Tensor:
    """Return the logits, bounded by a cap; padding columns keep their -inf."""
    if cap is None:
        return logits
    return logits.div(cap).tanh_().mul_(cap).masked_fill_(logits == -torch.inf, -torch.inf)


def _slope(capped: Tensor, cap: float) -> Tensor:
    """Return the derivative of the capped logits; 0 for -inf."""
    return 1 - capped.div(cap).square_().clamp_(max=1)


def _probabilities(logits: Tensor) -> tuple[Tensor, Tensor]:
    probabilities = logits.softmax(1)
    return probabilities, logits.amax(1) - probabilities.amax(
        1
    ).log()  # the largest probability is 1 / the sum of exp(logit - largest)


def _aligned_logits(hidden: Tensor, output: Tensor, bias: Tensor | None) -> Tensor:
    """Return logits, with columns of -inf that pad each row to an aligned length for the BLAS."""
    vocabulary = output.shape[0]
    logits = hidden.new_empty(hidden.shape[0], -(-vocabulary // _ALIGNED) * _ALIGNED)
    logits[:, vocabulary:] = -torch.inf
    if bias is None:
        torch.mm(hidden, output.T, out=logits[:, :vocabulary])
    else:
        torch.addmm(bias, hidden, output.T, out=logits[:, :vocabulary])
    return logits
