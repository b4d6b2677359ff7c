"""LMs made smaller in memory: weights rounded to a few bits, or the smallest ones set to zero. The given LM is not
changed."""

import copy
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from askwell.errors import BadOption
from askwell.lms.frozen import FrozenLM
from askwell.lms.identity import identify

_GROUP = 32
"""Weights of a row that share a scale, as in the usual 4-bit formats."""


def quantised(lm: FrozenLM, bits: int) -> FrozenLM:
    """Return the LM with the weights of its layers rounded to the nearest of 2^bits values, evenly spaced between the
    smallest and the largest of each group of 32 in a row; word vectors, norms and biases stay as they are."""
    if not 1 <= bits <= 8:
        raise BadOption(f"`after_bits` {bits}: weights are rounded to 1 to 8 bits", after_bits="--after-bits")
    return _changed(lm, lambda weights: round_to_bits(weights, bits), f"{bits} bits")


def pruned(lm: FrozenLM, share: float) -> FrozenLM:
    """Return the LM with this share of the weights of each of its layers' matrices, the smallest, set to zero."""
    if not 0 < share < 1:
        raise BadOption(f"`after_pruned` {share}: it is a share between 0 and 1", after_pruned="--after-pruned")
    return _changed(lm, lambda weights: without_smallest(weights, share), f"{share:.0%} pruned")


def round_to_bits(weights: Float[Tensor, "rows columns"], bits: int) -> Float[Tensor, "rows columns"]:
    """Round each weight to the nearest of 2^bits evenly spaced values, group by group."""
    rows, columns = weights.shape
    padded = nn.functional.pad(weights.double(), (0, -columns % _GROUP), mode="constant", value=torch.nan)
    groups = padded.view(rows, -1, _GROUP)
    least = torch.where(groups.isnan(), torch.inf, groups).amin(-1, keepdim=True)
    most = torch.where(groups.isnan(), -torch.inf, groups).amax(-1, keepdim=True)
    step = ((most - least) / (2**bits - 1)).clamp(min=torch.finfo(torch.float64).tiny)
    rounded = ((groups - least) / step).round() * step + least
    return rounded.view(rows, -1)[:, :columns].to(weights.dtype)


def without_smallest(weights: Float[Tensor, "rows columns"], share: float) -> Float[Tensor, "rows columns"]:
    """Set this share of a matrix's weights, those nearest to zero, to zero."""
    zeroed = weights.clone()
    smallest = weights.abs().flatten().argsort(stable=True)[: round(share * weights.numel())]
    zeroed.view(-1)[smallest] = 0
    return zeroed


@torch.no_grad()
def _changed(lm: FrozenLM, change: Callable[[Tensor], Tensor], how: str) -> FrozenLM:
    if lm.stays is not None:
        raise BadOption(f"the weights of {lm.identity.name} cannot be changed here: {lm.stays}")
    model = copy.deepcopy(lm.model)
    for weight, is_transposed in _matrices(model):
        weight.copy_(change(weight.T.contiguous()).T if is_transposed else change(weight))
    name = f"{lm.identity.name} ({how})"
    found = identify(model, lm.tokenizer, name=name, family=lm.family.name, folder=None)
    # Only the weights differ: the config, hashed as stored, is still the LM's.
    identity = lm.identity.model_copy(update={"name": name, "revision": None, "tensors_sha256": found.tensors_sha256})
    return FrozenLM(model, lm.tokenizer, identity=identity, device=lm.device, dtype=lm.dtype)


def _matrices(model: nn.Module) -> Iterator[tuple[Tensor, bool]]:
    """Yield the matrices of all layers, with whether rows are inputs (GPT-2's), but not what reads or writes words."""
    words = {id(parameter) for part in _word_tables(model) for parameter in part.parameters()}
    for module in model.modules():
        if isinstance(module, nn.Linear | Conv1D) and id(module.weight) not in words:
            yield module.weight, isinstance(module, Conv1D)


def _word_tables(model: nn.Module) -> Iterator[nn.Module]:
    for get in ("get_input_embeddings", "get_output_embeddings"):
        part = getattr(model, get)()
        if part is not None:
            yield part
