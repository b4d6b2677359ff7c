"""Holds a walk against the public model, values and gradients, before it is used."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from askwell.lms.batches import Batch, StreamBatch

# By how much two ways to compute the same may differ, as a share of the largest number.
_ROUNDING = {torch.float64: 1e-6, torch.float32: 2e-4}
_ROUNDING_OF_HALF = 0.25
_LENGTHS = (5, 3, 5, 2)


def agrees(lm: Any) -> bool:
    """Whether the LM's walk gives what its public model gives on short sentences."""
    with torch.enable_grad():
        batch = _sentences(lm.stacks, lm.device)
        hooked = _asked(lm, batch, use_walk=False)
        try:
            walked = _asked(lm, batch, use_walk=True)
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):
            return False  # a part of another make, a quantised one say, which only the whole model can run
    share = _ROUNDING.get(lm.dtype, _ROUNDING_OF_HALF)
    return all(_near(ours, theirs, share) for ours, theirs in zip(walked, hooked, strict=True))


def _near(ours: Tensor, theirs: Tensor, share: float) -> bool:
    return bool((ours - theirs).abs().max() <= share * theirs.abs().max())


def _sentences(stacks: Mapping[str, Any], device: torch.device) -> Batch:
    """Four short sentences with prompt tokens in them, in no order of lengths."""
    lengths = torch.tensor(_LENGTHS, device=device)
    at = torch.arange(max(_LENGTHS), device=device).expand(len(_LENGTHS), -1)
    real = at < lengths[:, None]
    ids = torch.where(real, (at + lengths[:, None]) % 3, 0)
    prompt_tokens = torch.where(real & (at % 2 == 1), at // 2, -1)
    stream = StreamBatch(ids, prompt_tokens, lengths)
    pairs = torch.tensor([0, 1, 1, 2, 3], device=device)
    return Batch(dict.fromkeys(stacks, stream), pairs, torch.tensor([4, 1, 2, 2, 1], device=device))


def _asked(lm: Any, batch: Batch, *, use_walk: bool) -> list[Tensor]:
    """Log-probabilities of some tokens, and the gradients of their sum for vectors and deltas."""
    generator = torch.Generator().manual_seed(0)

    def leaf(*shape: int, scale: float) -> Tensor:
        numbers = scale * torch.randn(*shape, generator=generator)
        return numbers.to(lm.device, lm.parameter_dtype).requires_grad_()

    count = int(max(stream.prompt_tokens.max() for stream in batch.streams.values())) + 1
    usual = float(lm.word_vectors(torch.arange(4, device=lm.device)).float().std())
    vectors = leaf(count, lm.embedding_size, scale=usual)
    deltas = {name: leaf(stack.layers, count, stack.width, scale=usual) for name, stack in lm.stacks.items()}
    tokens = torch.arange(len(batch.read_pairs), device=lm.device)
    by_layer = {name: delta.unbind(0) for name, delta in deltas.items()}
    log_probs, log_totals = lm.log_probs_of(batch, vectors, by_layer, tokens, use_walk=use_walk)
    log_probs.sum().backward()
    return [log_probs.detach(), log_totals.detach(), *(_gradient(part) for part in (vectors, *deltas.values()))]


def _gradient(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
