"""Control LMs: like a given one, but without its knowledge. Whatever tuning elicits from them was put there by
tuning."""

import copy
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from askwell.lms.frozen import FrozenLM
from askwell.lms.identity import identify
from askwell.specs.run_spec import ControlKind


def control_lm(lm: FrozenLM, kind: ControlKind, seed: int) -> FrozenLM:
    """Return an LM of the same shape, tokenizer, device and precision that knows nothing; the given one is not changed.

    "random-weights" draws every weight as the model's own class does for a model that is to be trained.
    "random-embeddings" draws only the table of word embeddings (and with it a head that is tied to it) from a Gaussian
    with the mean and standard deviation of all its numbers, and keeps all other weights.
    """
    draw = {"random-weights": _with_random_weights, "random-embeddings": _with_random_embeddings}[kind]
    model = draw(lm.model, seed)
    name = f"{lm.identity.name} ({kind.replace('-', ' ')}, seed {seed})"
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
