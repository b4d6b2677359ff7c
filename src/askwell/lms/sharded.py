"""LMs that cannot be moved or cast: spread over devices, offloaded to CPU or disk, or quantised.

They are read through the public model as a whole; nothing moves, casts or walks through their layers.
"""

import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

_log = logging.getLogger("askwell")
_told: set[str] = set()


def why_it_stays(model: PreTrainedModel) -> str | None:
    """Return why a model cannot be moved or cast (offloaded, spread or quantised); None for an ordinary one."""
    if getattr(model, "is_quantized", False) or getattr(model, "hf_quantizer", None) is not None:
        method = getattr(getattr(model.config, "quantization_config", None), "quant_method", None)
        if str(getattr(method, "value", method)) != "gguf":  # what is loaded from GGUF has ordinary weights
            return "quantised"
    if any(tensor.device.type == "meta" for tensor in model.parameters()):
        return "offloaded to CPU or disk"
    if len(set((getattr(model, "hf_device_map", None) or {}).values())) > 1:
        return "spread over several devices"
    return None


def tell_once(name: str, why: str) -> None:
    """Log once for each LM that the fast walk through its layers is not used."""
    if name not in _told:
        _told.add(name)
        _log.warning("%s is %s: it is not moved, and is read as a whole, without the fast walk", name, why)


def keep_differentiable(model: nn.Module) -> None:
    """Keep bitsandbytes' four-bit layers from repacking their weights for inference, and unpacks those that are.

    On CPUs with AVX512-BF16 they do so when they are first called without gradients, and from then on no gradient
    passes through them, without an error.
    """
    for module in model.modules():
        if getattr(module, "support_avx512bf16_for_cpu", False):
            module.state_dict()  # unpacks what is packed
            vars(module)["support_avx512bf16_for_cpu"] = False


def input_device(model: PreTrainedModel) -> torch.device:
    """Return the device on which such a model takes its inputs."""
    embedding: Any = model.get_input_embeddings()
    running = getattr(getattr(embedding, "_hf_hook", None), "execution_device", None)
    if running is not None:
        return torch.device(running)
    return embedding.weight.device


def stored_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a model, sorted by name, tied ones once; offloaded ones are fetched one by one."""
    seen: set[Any] = set()
    tied: dict[str, str] = dict(getattr(model, "all_tied_weights_keys", None) or {})
    for name, tensor in sorted(model.state_dict().items()):
        # Offloaded tensors have no address by which tied ones could be recognised.
        where = tied.get(name, name) if tensor.device.type == "meta" else (tensor.data_ptr(), tuple(tensor.shape))
        if where in seen:
            continue
        seen.add(where)
        yield name, tensor if tensor.device.type != "meta" else _fetched(model, name)


def _fetched(model: nn.Module, name: str) -> Tensor:
    path, _, own = name.rpartition(".")
    hook = getattr(model.get_submodule(path), "_hf_hook", None)
    for each in getattr(hook, "hooks", [hook]):
        weights = getattr(each, "weights_map", None)
        if weights is not None:
            return weights[own]
    raise KeyError(f"{name} is offloaded to a place that accelerate does not report")
