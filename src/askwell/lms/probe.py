"""Looks at a public model on short inputs before it is used: where its layers are, and whether it can be read.

Nothing is taken from a config: an architecture that askwell has never seen is used if it passes, and refused if not.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from askwell.errors import LMUnavailable
from askwell.lms.families import Family
from askwell.lms.perturb import counting_layers, layer_blocks, reading_at

# Logits of the same token, read alone or beside padding, may differ by rounding; by more, padding changes the answer.
_ROUNDING = 1e-2


@dataclass(frozen=True)
class Stack:
    """A run of layers with an input of its own."""

    blocks: tuple[nn.Module, ...]
    layers: int
    width: int


@torch.no_grad()
def probe(model: PreTrainedModel, family: Family, embedding: Any) -> tuple[dict[str, Stack], nn.Module]:
    """The stacks of a model, and the part of it whose output its head reads."""
    ids = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 0]], device=model.device)
    lengths = torch.tensor([4, 2], device=model.device)
    try:
        parts = family.stacks(model)
        blocks = {name: tuple(layer_blocks(part)) for name, part in parts.items()}
        with ExitStack() as counting:
            widths = {name: counting.enter_context(counting_layers(blocks[name])) for name in parts}
            alone = _logits(model, family, embedding, ids[1:, :2], lengths[1:])[0, 1]
        padded = _logits(model, family, embedding, ids, lengths)[1, 1]
        before_head = _find_before_head(model, family, embedding, ids, lengths, padded)
    except (RuntimeError, IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise LMUnavailable(f"{type(model).__name__} cannot be asked: it fails on a short input ({reason})") from error
    is_exact = model.dtype in (torch.float32, torch.float64) and alone.isfinite().all()
    if is_exact and (alone - padded).abs().max() > _ROUNDING * alone.abs().max():
        raise LMUnavailable(f"{type(model).__name__} cannot be asked: padding beside a sentence changes its answers")
    stacks = {name: Stack(blocks[name], len(widths[name]), widths[name][0]) for name in parts}
    return stacks, before_head


def _find_before_head(
    model: PreTrainedModel, family: Family, embedding: Any, ids: Tensor, lengths: Tensor, expected: Tensor
) -> nn.Module:
    """The module whose output the head reads: the base model, or the decoder inside of it (OPT)."""
    candidates = [model.base_model, getattr(model.base_model, "decoder", None)]
    one = torch.ones(1, dtype=torch.long, device=model.device)
    for candidate in candidates:
        if isinstance(candidate, nn.Module):
            with reading_at(candidate, one, one):
                logits = _logits(model, family, embedding, ids, lengths)
            is_read = logits.shape[:2] == (1, 1)
            if is_read and torch.allclose(logits[0, 0], expected, rtol=1e-2, atol=1e-2, equal_nan=True):
                return candidate
    raise LMUnavailable(f"{type(model).__name__} cannot be asked: its head cannot be held to single positions")


def _logits(model: PreTrainedModel, family: Family, embedding: Any, ids: Tensor, lengths: Tensor) -> Tensor:
    mask = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
    return model(**family.inputs(dict.fromkeys(family.stacks(model), (embedding(ids), mask)))).logits
