"""Copies of an LM, changed in memory: controls, which have its shape but not its knowledge, so that whatever tuning
elicits from them was put there by tuning; and LMs whose weights are rounded to a few bits or pruned."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from askwell.errors import BadOption, checked
from askwell.lms.frozen import FrozenLM
from askwell.lms.identity import identify
from askwell.specs.run_spec import ControlKind

GROUP = 32
"""How many weights of a row share a scale and an offset, as in most formats of quantised LMs."""
BITS = (8, 4, 3, 2)


def control_lm(lm: FrozenLM, kind: ControlKind, seed: int) -> FrozenLM:
    """Return an LM of the same shape, tokenizer, device and precision that knows nothing; the given one is not changed.

    "random-weights" draws every weight as the model's own class does for a model that is to be trained.
    "random-embeddings" draws only the table of word embeddings (and with it a head that is tied to it) from a Gaussian
    with the mean and standard deviation of all its numbers, and keeps all other weights.
    """
    draw = {"random-weights": _with_random_weights, "random-embeddings": _with_random_embeddings}[kind]
    return _with_weights(lm, draw(lm.model, seed), f"{lm.identity.name} ({kind.replace('-', ' ')}, seed {seed})")


def _with_weights(lm: FrozenLM, model: PreTrainedModel, name: str) -> FrozenLM:
    """Return the LM with the weights of a model of its class, under another name."""
    found = identify(model, lm.tokenizer, name=name, family=lm.family.name, folder=None)
    # Only the weights differ: the config, hashed as stored, is still the LM's.
    changed = {"name": name, "revision": None, "tensors_sha256": found.tensors_sha256}
    identity = lm.identity.model_copy(update=changed)
    return FrozenLM(model, lm.tokenizer, identity=identity, device=lm.device, dtype=lm.dtype, compiled=lm.is_compiled)


def _with_random_weights(model: PreTrainedModel, seed: int) -> PreTrainedModel:
    # Drawn on the CPU, so that a seed means the same weights on every device.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        return type(model)(copy.deepcopy(model.config))


@torch.no_grad()
def _with_random_embeddings(model: PreTrainedModel, seed: int) -> PreTrainedModel:
    copied = copy.deepcopy(model)
    embedding: Any = copied.get_input_embeddings()
    table: Tensor = embedding.weight
    known = table.double()
    drawn = torch.randn(table.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
    table.copy_(drawn * float(known.std()) + float(known.mean()))
    return copied


@checked
@torch.no_grad()
def changed_lm(lm: FrozenLM, *, bits: int | None = None, pruned: float | None = None) -> FrozenLM:
    """Return a changed copy of an LM; the given one is not changed.

    `pruned` is the fraction of each matrix that is set to 0, the weights nearest to 0 first. With `bits`, the matrices
    are then rounded to 2^bits values for each group of 32 weights of a row, evenly spaced from the smallest to the
    largest of the group. Word vectors and the output layer, norms and biases stay as they are.
    """
    if bits is None and pruned is None:
        return lm
    if bits is not None and bits not in BITS:
        raise BadOption(f"`bits` {bits}: choose 8, 4, 3 or 2", bits="--after-bits")
    if pruned is not None and not 0 < pruned < 1:
        raise BadOption(f"`pruned` {pruned:g}: name a fraction between 0 and 1, such as 0.3", pruned="--after-pruned")
    model = copy.deepcopy(lm.model)
    count = 0
    for matrix in _matrices(model):
        if pruned is not None:
            matrix.copy_(without_smallest(matrix, pruned))
        if bits is not None:
            matrix.copy_(rounded(matrix, bits))
        count += 1
    if not count:
        raise BadOption(f"{lm.identity.name} has no matrices that could be rounded or pruned: it is stored otherwise")
    told = [f"{100 * pruned:g} % pruned"] if pruned is not None else []
    told += [f"{bits} bits"] if bits is not None else []
    name = f"{lm.identity.name} ({', '.join(told)})"
    return _with_weights(lm, model, name)


def _matrices(model: PreTrainedModel) -> Iterator[Tensor]:
    """Yield the matrices of a model's linear layers, outputs in rows; tied ones once."""
    head, seen = model.get_output_embeddings(), set()
    for module in model.modules():
        weight: Any = getattr(module, "weight", None)
        if module is head or not isinstance(module, nn.Linear | Conv1D) or not weight.is_floating_point():
            continue
        if weight.data_ptr() not in seen:
            seen.add(weight.data_ptr())
            yield weight.T if isinstance(module, Conv1D) else weight


def rounded(matrix: Float[Tensor, "rows columns"], bits: int) -> Float[Tensor, "rows columns"]:
    """Round to the nearest of 2^bits values in each group of 32 weights of a row; the last group may be shorter."""
    groups = []
    for group in matrix.float().split(GROUP, dim=1):
        low, high = group.amin(1, keepdim=True), group.amax(1, keepdim=True)
        step = (high - low) / (2**bits - 1)
        levels = torch.where(step > 0, (group - low) / step, torch.zeros_like(group)).round()
        groups.append(low + levels * step)
    return torch.cat(groups, dim=1).to(matrix.dtype)


def without_smallest(matrix: Float[Tensor, "rows columns"], share: float) -> Float[Tensor, "rows columns"]:
    """Set this fraction of a matrix to 0, the weights nearest to 0 first."""
    smallest = matrix.abs().reshape(-1).argsort(stable=True)[: int(share * matrix.numel())]
    kept = torch.ones(matrix.numel(), dtype=torch.bool, device=matrix.device)
    kept[smallest] = False
    return matrix * kept.reshape(matrix.shape)
