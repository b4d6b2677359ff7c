"""Loads frozen LMs: the testbed's, pulled ones, a checkpoint folder, an adapter, a GGUF file, or a name on the hub."""

import json
import time
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from askwell.errors import BadOption, LMUnavailable, checked
from askwell.lms.checkpoints import (
    built_in_folder,
    find_tokenizer,
    load_checkpoint_files,
    named_tokenizer,
    public_name,
    quiet,
)
from askwell.lms.families import family_of
from askwell.lms.frozen import FrozenLM
from askwell.lms.identity import LMIdentity, identify, key_of_files, recall, remember
from askwell.lms.machine import Precision, choose_device, choose_dtype


@checked
def load_lm(
    name: str | Path | PreTrainedModel,
    tokenizer: str | Path | PreTrainedTokenizerBase | None = None,
    *,
    revision: str | None = None,
    device: str | int | torch.device | None = None,
    dtype: Precision | torch.dtype = "auto",
    device_map: str | dict[str, Any] | None = None,
    compiled: bool = False,
) -> FrozenLM:
    """Return the frozen LM of that name: testbed:bert, smollm2, a checkpoint folder, a folder with a LoRA adapter of
    PEFT's, which is merged, a .gguf file, or a name on the hub.

    It can also be a transformers model in memory, with its `tokenizer`; that model is frozen, put into evaluation mode
    and, if a `device` or `dtype` is given, moved. Otherwise `tokenizer` names one that is not beside the weights: a
    folder, a vocab.txt, or a name on the hub. `dtype` is a torch dtype or its name; "auto" is half precision on a GPU.
    `compiled` compiles parts of its layers with torch.compile: slow to start, but worth it for long runs on a GPU.

    `device_map` ("auto", or as transformers takes it) spreads an LM that does not fit on one device over several, and
    over CPU and disk. Such an LM, and a quantised one, is not moved and is read as a whole.
    """
    if device_map is not None and (device is not None or dtype != "auto"):
        raise BadOption(
            "device_map= says where an LM runs, in the precision of its files; leave out device= and dtype="
        )
    if isinstance(name, PreTrainedModel):
        if revision is not None:
            raise BadOption(f"revision={revision!r} is for LMs on the hub; this model is already in memory")
        if tokenizer is None:
            raise BadOption("a model in memory needs its tokenizer: load_lm(model, tokenizer)")
        source = name.config._name_or_path or None  # where a saved mixture finds its LM
        return FrozenLM(
            name,
            tokenizer if isinstance(tokenizer, PreTrainedTokenizerBase) else named_tokenizer(tokenizer),
            name=None if source is None else public_name(source),
            device=None if device is None else choose_device(device),
            dtype=None if dtype == "auto" else choose_dtype(dtype, name.device),
            compiled=compiled,
        )
    if isinstance(tokenizer, PreTrainedTokenizerBase):
        raise BadOption("a tokenizer in memory goes with a model in memory; for a stored LM, name a folder or hub name")
    chosen_device = choose_device(device)
    chosen_dtype = choose_dtype(dtype, chosen_device)
    apart = None if tokenizer is None else named_tokenizer(tokenizer)
    started = time.time()
    stored = str(built_in_folder(str(name)) or name)
    if is_adapter(stored):
        (model, used), folder = load_adapter(stored, apart, device_map), None
    else:
        model, used, folder = load_checkpoint_files(stored, revision, apart, device_map)
    key = None if apart is not None or folder is None else key_of_files(public_name(name), folder, started)
    known = None if key is None else recall("identified", key)
    if known is not None:
        identity = LMIdentity.model_validate(known)
    else:
        family = family_of(model.config).name
        identity = identify(model, used, name=public_name(name), family=family, folder=folder)
        if key is not None:
            remember("identified", key, identity.model_dump())
    return FrozenLM(
        model,
        used,
        identity=identity,
        as_stored=True,
        source=str(name),
        tokenizer_source=None if tokenizer is None else str(tokenizer),
        device=None if device_map is not None else chosen_device,
        dtype=None if device_map is not None else chosen_dtype,
        compiled=compiled,
    )


# ── adapters ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_CONFIG = "adapter_config.json"
_BASE = "base_model_name_or_path"


def is_adapter(name: str) -> bool:
    """Tell whether a name is a folder with an adapter, and no LM of its own."""
    folder = Path(name)
    return (folder / _CONFIG).is_file() and not (folder / "config.json").is_file()


def load_adapter(
    name: str,
    tokenizer: PreTrainedTokenizerBase | None = None,
    device_map: str | dict[str, Any] | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the LM that an adapter belongs to, with the adapter merged into its weights, and its tokenizer: the given
    one, else the adapter's, else the LM's."""
    folder = Path(name)
    base = _base_of(name, folder / _CONFIG)
    try:
        from peft import PeftModel
    except ImportError:
        raise LMUnavailable(f"`lm` {name}: an adapter needs peft, which is not installed: pip install peft") from None
    try:
        if tokenizer is None and (folder / "tokenizer_config.json").is_file():
            with quiet():
                tokenizer = find_tokenizer(name, trust_remote_code=False)
        model, used, _ = load_checkpoint_files(str(built_in_folder(base) or base), None, tokenizer, device_map)
    except LMUnavailable as error:
        problem = str(error).removesuffix(".")
        raise LMUnavailable(f"{problem}. It is the {_BASE} of the adapter {name}, in its {_CONFIG}") from None
    try:
        with quiet():
            adapted: Any = PeftModel.from_pretrained(model, name)
    except Exception as error:  # broken files cause all kinds of errors in several libraries
        reason = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
        raise LMUnavailable(f"`lm` {name}: the adapter cannot be put on {base} ({reason})") from error
    if not hasattr(adapted.base_model, "merge_and_unload"):
        kind = adapted.peft_config[adapted.active_adapter].peft_type.value
        raise LMUnavailable(f"`lm` {name}: an adapter of the kind {kind} cannot be merged into weights; LoRA's can")
    return adapted.merge_and_unload(), used


def _base_of(name: str, path: Path) -> str:
    try:
        base = json.loads(path.read_text(encoding="utf-8"))[_BASE]
    except (OSError, ValueError, KeyError, TypeError):
        base = None
    if not isinstance(base, str) or not base:
        raise LMUnavailable(f"`lm` {name}: its {_CONFIG} does not say of which LM it is an adapter ({_BASE})")
    return base
