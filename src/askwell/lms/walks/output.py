"""From the rows that are read to log-probabilities, with as few passes over the vocabulary as possible."""

from dataclasses import dataclass
from functools import cached_property
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


@dataclass(frozen=True)
class Head:
    """The last step of an LM, from hidden states to distributions over its vocabulary."""

    output: Float[Tensor, "vocabulary width"]
    bias: Float[Tensor, " vocabulary"] | None
    cap: float | None = None
    """The bound on logits, applied by a hyperbolic tangent, as in Gemma 2."""

    @cached_property
    def dtype(self) -> torch.dtype:
        """The precision of probabilities: never less than float32."""
        return torch.promote_types(self.output.dtype, torch.float32)

    @torch.no_grad()
    def logits(self, hidden: Float[Tensor, "reads width"]) -> Float[Tensor, "reads vocabulary"]:
        """Return the logits over the whole vocabulary, without a gradient."""
        return self.capped(self._aligned(hidden))[:, : len(self.output)].to(self.dtype)

    @torch.no_grad()
    def distributions(
        self, hidden: Float[Tensor, "reads width"]
    ) -> tuple[Float[Tensor, "reads vocabulary"], Float[Tensor, " reads"]]:
        """Return probabilities over the whole vocabulary and their log-normalisers, without gradients."""
        probabilities, log_totals = _probabilities(self.capped_logits(hidden))
        return probabilities[:, : len(self.output)], log_totals

    def log_probs_of(
        self, hidden: Float[Tensor, "reads width"], tokens: Int[Tensor, " reads"]
    ) -> tuple[Float[Tensor, " reads"], Float[Tensor, " reads"]]:
        """Return the log-probability of one token at each row, and the log-normaliser over all tokens, which carries no
        gradient."""
        return _LogProbsOf.apply(hidden, self, tokens)

    def several_log_probs_of(
        self, hidden: Float[Tensor, "reads width"], reads: Int[Tensor, " targets"], tokens: Int[Tensor, " targets"]
    ) -> tuple[Float[Tensor, " targets"], Float[Tensor, " reads"]]:
        """Return the log-probability of tokens[i] at the row reads[i], in any number for each row, and each row's
        log-normaliser, which carries no gradient."""
        if torch.is_grad_enabled() and hidden.requires_grad:
            return _SeveralLogProbsOf.apply(hidden, self, reads, tokens)
        log_totals = self._log_totals(hidden)
        of_tokens = torch.linalg.vecdot(hidden[reads], self.output[tokens]).to(self.dtype)
        of_tokens = self.capped(of_tokens if self.bias is None else of_tokens + self.bias[tokens])
        return of_tokens - log_totals[reads], log_totals

    @torch.no_grad()
    def _log_totals(self, hidden: Float[Tensor, "reads width"]) -> Float[Tensor, " reads"]:
        """Return the log-normaliser of each row's distribution, computed over one part of the vocabulary at a time."""
        found = torch.empty(len(hidden), dtype=self.dtype, device=hidden.device)
        at_once = max(_ROWS_AT_ONCE, _LOGITS_AT_ONCE // _COLUMNS_AT_ONCE)
        for start in range(0, len(hidden), at_once):
            some = hidden[start : start + at_once]
            parts = []
            for first in range(0, len(self.output), _COLUMNS_AT_ONCE):
                columns = slice(first, first + _COLUMNS_AT_ONCE)
                bias = None if self.bias is None else self.bias[columns]
                logits = self.capped(functional.linear(some, self.output[columns], bias).to(self.dtype))
                largest = logits.amax(1, keepdim=True)
                parts.append(logits.sub_(largest).exp_().sum(1).log_().add_(largest[:, 0]))
            found[start : start + at_once] = torch.stack(parts, 1).logsumexp(1)
        return found

    def capped_logits(self, hidden: Tensor) -> Tensor:
        """Return logits in the precision of probabilities, with columns of -inf after those of the vocabulary."""
        return self.capped(self._aligned(hidden).to(self.dtype))

    def capped(self, logits: Tensor) -> Tensor:
        """Return the logits, bounded by the cap; padding columns keep their -inf."""
        if self.cap is None:
            return logits
        return logits.div(self.cap).tanh_().mul_(self.cap).masked_fill_(logits == -torch.inf, -torch.inf)

    def slope(self, capped: Tensor) -> Tensor | None:
        """Return the derivative of capped logits, 0 for -inf; None without a cap."""
        return None if self.cap is None else 1 - capped.div(self.cap).square_().clamp_(max=1)

    def _aligned(self, hidden: Tensor) -> Tensor:
        """Return logits, with columns of -inf that pad each row to an aligned length for the BLAS."""
        vocabulary = len(self.output)
        logits = hidden.new_empty(hidden.shape[0], -(-vocabulary // _ALIGNED) * _ALIGNED)
        logits[:, vocabulary:] = -torch.inf
        if self.bias is None:
            torch.mm(hidden, self.output.T, out=logits[:, :vocabulary])
        else:
            torch.addmm(self.bias, hidden, self.output.T, out=logits[:, :vocabulary])
        return logits


class _LogProbsOf(torch.autograd.Function):
    """The distribution is kept instead of the logits, so that the backward pass is one product."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Head, tokens: Tensor) -> tuple[Tensor, Tensor]:
        logits = head.capped_logits(hidden)
        of_tokens = logits.gather(1, tokens[:, None])[:, 0]
        probabilities, log_totals = _probabilities(logits)
        of_cap, slopes = head.slope(of_tokens), head.slope(logits)
        if slopes is not None:
            probabilities = probabilities * slopes
        ctx.save_for_backward(probabilities.to(hidden.dtype), head.output, tokens, of_cap)
        ctx.mark_non_differentiable(log_totals)
        return of_tokens - log_totals, log_totals

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        probabilities, output, tokens, of_cap = ctx.saved_tensors
        of_tokens = output[tokens] if of_cap is None else output[tokens] * of_cap.to(output.dtype)[:, None]
        of_hidden = (of_tokens - probabilities[:, : output.shape[0]] @ output) * gradients[0][:, None]
        return of_hidden.to(output.dtype), None, None


class _SeveralLogProbsOf(torch.autograd.Function):
    """Only the mean output embedding of each distribution is kept, which is all that the backward pass needs: no more
    logits are held than are processed at once."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Head, reads: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        output, vocabulary, order = head.output, len(head.output), reads.argsort(stable=True)
        log_probs = torch.empty(len(reads), dtype=head.dtype, device=hidden.device)
        log_totals = torch.empty(len(hidden), dtype=head.dtype, device=hidden.device)
        mean_output = torch.empty_like(hidden)
        of_cap = None if head.cap is None else hidden.new_empty(len(reads))
        at_once = max(_ROWS_AT_ONCE, _LOGITS_AT_ONCE // vocabulary)
        starts = torch.arange(0, len(hidden) + at_once, at_once, device=reads.device)
        ends = torch.searchsorted(reads[order], starts).tolist()
        for number, start in enumerate(range(0, len(hidden), at_once)):
            some, targets = slice(start, start + at_once), order[ends[number] : ends[number + 1]]
            logits = head.capped_logits(hidden[some])
            of_targets = logits[reads[targets] - start, tokens[targets]]
            probabilities, log_totals[some] = _probabilities(logits)
            slopes = head.slope(logits)
            if of_cap is not None and slopes is not None:
                of_cap[targets] = slopes[reads[targets] - start, tokens[targets]].to(hidden.dtype)
                probabilities = probabilities * slopes
            mean_output[some] = probabilities[:, :vocabulary].to(hidden.dtype) @ output
            log_probs[targets] = of_targets - log_totals[reads[targets]]
        ctx.save_for_backward(mean_output, output, reads, tokens, of_cap)
        ctx.mark_non_differentiable(log_totals)
        return log_probs, log_totals

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        mean_output, output, reads, tokens, of_cap = ctx.saved_tensors
        of_tokens = output[tokens] if of_cap is None else output[tokens] * of_cap[:, None]
        of_targets = (gradients[0].to(output.dtype))[:, None] * (of_tokens - mean_output[reads])
        return torch.zeros_like(mean_output).index_add_(0, reads, of_targets), None, None, None


def _probabilities(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return probabilities and log-normalisers: the largest probability is 1 / the sum of exp(logit - largest)."""
    probabilities = logits.softmax(1)
    return probabilities, logits.amax(1) - probabilities.amax(1).log()
