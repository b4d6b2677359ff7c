"""The identity of an LM: hashes of its tokenizer, config and stored tensors, wherever it is and in whatever precision
it runs."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from askwell.files import hash_json
from askwell.lms.sharded import stored_tensors

# Keys about where, when and how a checkpoint was written or is run, not about what it computes.
_INCIDENTAL = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures", "use_cache"}
PROBE = "Mary Cassatt (1844–1926), born in [X]vik, didn't pay 3.50 € for it.\n\tÅ naïve 東京 😀"
"""A text with most of what tokenizers treat differently."""


class LMIdentity(BaseModel):
    """The name of an LM and the hashes that identify it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    revision: str | None
    architecture: str
    family: str
    tokenizer_sha256: str
    config_sha256: str
    tensors_sha256: str

    def same_lm(self, other: "LMIdentity") -> bool:
        """Return whether both are the same LM, whatever its name."""
        return not self.differences(other)

    @property
    def digest(self) -> str:
        """Return SHA-256 of everything that identifies an LM, regardless of its name and place."""
        return hash_json(self.model_dump(mode="json", exclude={"name", "revision"}))

    def differences(self, other: "LMIdentity") -> list[str]:
        """Return the parts in which the two differ, in words."""
        parts = {"architecture": "architecture", "tokenizer_sha256": "tokenizer", "config_sha256": "config"}
        parts |= {"family": "family", "tensors_sha256": "weights"}
        return [word for field, word in parts.items() if getattr(self, field) != getattr(other, field)]


def identify(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, name: str, family: str, folder: Path | None
) -> LMIdentity:
    """Return the identity of a model as it was stored; call it before the model is cast to another precision.

    `folder` holds the stored config. In the hub's cache it is named after the commit.
    """
    return LMIdentity(
        name=name,
        revision=folder.name if folder and folder.parent.name == "snapshots" else None,
        architecture=type(model).__name__,
        family=family,
        tokenizer_sha256=_hash_tokenizer(tokenizer),
        config_sha256=_hash_config(model, folder),
        tensors_sha256=_hash_tensors(model),
    )


def _hash_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a hash of vocabulary, merges and behaviour, since the layout of the file changes between releases."""
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    vocabulary = model["vocab"] if model["type"] == "Unigram" else tokenizer.get_vocab()  # Unigram's has its scores
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model.get("merges", [])]
    special = {name: tokenizer.convert_tokens_to_ids(token) for name, token in tokenizer.special_tokens_map.items()}
    return hash_json([vocabulary, merges, special, tokenizer(PROBE)["input_ids"]])


def _hash_config(model: PreTrainedModel, folder: Path | None) -> str:
    """Return a hash of the stored config: defaults that a later release adds do not count."""
    folder = folder or Path(model.config._name_or_path or "nowhere")  # where a model in memory came from, if it is here
    stored = folder / "config.json"
    config: Mapping[str, Any] = (
        json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else model.config.to_diff_dict()
    )
    incidental = _INCIDENTAL
    if (config.get("quantization_config") or {}).get("quant_method") == "gguf":
        incidental = incidental | {"quantization_config"}  # the name of a GGUF file, whose tensors are hashed anyway
    return hash_json({key: value for key, value in config.items() if key not in incidental})


def _hash_tensors(model: nn.Module) -> str:
    """Return a hash of names, shapes and contents; tied tensors count once."""
    digest = hashlib.sha256()
    for name, tensor in stored_tensors(model):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)};".encode())
        digest.update(_bytes_of(tensor))
    return digest.hexdigest()


def _bytes_of(tensor: Tensor) -> memoryview:
    return memoryview(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
