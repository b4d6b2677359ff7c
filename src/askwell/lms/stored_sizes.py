"""Is a checkpoint's config the one of its weights? Asked before anything large is built from it."""

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import PretrainedConfig

from askwell.errors import LMUnavailable

_LAYERS = ("num_hidden_layers", "encoder_layers", "decoder_layers", "num_hidden_groups")
_OF_STORED = 4
"""A model may have so many times as many numbers as its files: weights that are not stored are told apart later."""
_MORE = 2**24


def check_sizes(config: PretrainedConfig, folder: Path | None, auto_class: Any) -> None:
    """Refuses a config that asks for far more than the safetensors files of its folder hold.

    Only the headers of the files are read, and the model is laid out without memory of its own.
    """
    files = sorted(folder.glob("*.safetensors")) if folder is not None else []
    if not files or getattr(config, "quantization_config", None) is not None:  # quantised weights are packed
        return
    tensors, stored = 0, 0
    for file in files:
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - a handle, not a mapping
                shape = opened.get_slice(name).get_shape()
                tensors, stored = tensors + 1, stored + int(torch.Size(shape).numel())
    for part in (config, config.get_text_config()):
        for name in _LAYERS:
            layers = getattr(part, name, 0)
            # Before it is laid out, which takes time for each layer. ALBERT's layers share their weights.
            if not isinstance(layers, int) or layers < 0 or layers > max(tensors, 1000):
                raise LMUnavailable(
                    f"its config.json has {name} {str(layers)[:40]}, and its files hold {tensors} tensors in all; they "
                    "do not belong together"
                )
    with torch.device("meta"):
        wanted = sum(parameter.numel() for parameter in auto_class.from_config(config).parameters())
    if wanted > _OF_STORED * stored + _MORE:
        raise LMUnavailable(
            f"its config.json describes a model of {wanted:,} numbers, and its files hold {stored:,}; they do not "
            "belong together"
        )
