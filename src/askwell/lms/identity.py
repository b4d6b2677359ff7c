"""The identity of an LM: hashes of its tokenizer, config and stored tensors, wherever it is and in whatever precision
it runs; and what is remembered about LMs between starts.

Probing a model, checking its walk against the public forward pass and hashing its weights take longer than loading it.
The results are valid as long as the LM, the code and the versions of everything that computes are the same, so they
are kept in the cache folder under a hash of all these, and whatever was written for anything else is ignored. Models in
memory are always checked, since their computation may have been changed.
"""

import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from askwell.errors import CannotWrite
from askwell.files import cache_folder, hash_json, write_whole
from askwell.version import VERSION

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Keys about where, when and how a checkpoint was written or is run, not about what it computes.
_INCIDENTAL = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures", "use_cache"}
# A file that is written twice within a tick of its file system's clock can look unchanged, so nothing is remembered
# about files that are this recent.
_SETTLED_SECONDS = 5.0
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
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", *, name: str, family: str, folder: Path | None
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


def _hash_tokenizer(tokenizer: "PreTrainedTokenizerBase") -> str:
    """Return a hash of vocabulary, merges and behaviour, since the layout of the file changes between releases."""
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    vocabulary = model["vocab"] if model["type"] == "Unigram" else tokenizer.get_vocab()  # Unigram's has its scores
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model.get("merges", [])]
    special = {name: tokenizer.convert_tokens_to_ids(token) for name, token in tokenizer.special_tokens_map.items()}
    return hash_json([vocabulary, merges, special, tokenizer(PROBE)["input_ids"]])


def _hash_config(model: "PreTrainedModel", folder: Path | None) -> str:
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


def _hash_tensors(model: "nn.Module") -> str:
    """Return a hash of names, shapes and contents; tied tensors count once."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in _stored_tensors(model):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)};".encode())
        digest.update(memoryview(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()


def _stored_tensors(model: "nn.Module") -> "Iterator[tuple[str, Tensor]]":
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


def _fetched(model: "nn.Module", name: str) -> "Tensor":
    path, _, own = name.rpartition(".")
    hook = getattr(model.get_submodule(path), "_hf_hook", None)
    for each in getattr(hook, "hooks", [hook]):
        weights = getattr(each, "weights_map", None)
        if weights is not None:
            return weights[own]
    raise KeyError(f"{name} is offloaded to a place that accelerate does not report")


# ── what is remembered between starts ─────────────────────────────────────────────────────────────────────────────


def recall(kind: str, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what was found earlier for this key, None if there is nothing that can be read."""
    try:
        stored = json.loads(_place(kind, key).read_bytes())
        return stored["found"] if stored["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(kind: str, key: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Write what was found for a key; if that is not possible, it is computed again next time."""
    with suppress(CannotWrite):
        write_whole(_place(kind, key), json.dumps({"key": key, "found": found}, indent=1) + "\n")


def _place(kind: str, key: Mapping[str, Any]) -> Path:
    return cache_folder() / kind / f"{hash_json(key)}.json"


def key_of_checks(identity: LMIdentity, device: "torch.device", dtype: "torch.dtype") -> dict[str, Any]:
    """Return everything that the checks of an LM depend on."""
    return {"lm": identity.digest, "device": str(device), "dtype": str(dtype), **_versions()}


def key_of_files(name: str, folder: Path, loaded_at: float) -> dict[str, Any] | None:
    """Return everything that the identity of the LM in a folder depends on: its files by place, size, number and times.

    None if that would not reveal an altered file: if a file changed less than a few seconds before it was loaded, and
    outside POSIX, whose change time follows every write and cannot be set back.
    """
    if os.name != "posix":
        return None
    files, youngest = {}, 0
    for path in sorted(folder.iterdir()):
        if path.is_file():
            found = path.stat()
            files[path.name] = [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
            youngest = max(youngest, found.st_mtime_ns, found.st_ctime_ns)
    if youngest > (loaded_at - _SETTLED_SECONDS) * 1e9:
        return None
    return {"name": name, "folder": str(folder.resolve()), "files": files, **_versions()}


@cache
def _versions() -> dict[str, str]:
    """Return the versions of everything that computes; for askwell also the code itself, which changes during
    development."""
    code = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        code.update(path.read_bytes())
    packages = {name: version(name) for name in ("torch", "transformers", "tokenizers", "safetensors")}
    return {**packages, "askwell": VERSION, "code": code.hexdigest(), "machine": platform.machine()}
