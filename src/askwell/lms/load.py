"""Loads frozen LMs: the testbed's, pulled ones, a checkpoint folder, a GGUF file, or a name on the hub."""

import os
import time
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from askwell.calls import checked
from askwell.errors import BadOption
from askwell.lms.checkpoints import built_in_folder, load_checkpoint_files, public_name
from askwell.lms.families import family_of
from askwell.lms.frozen import FrozenLM
from askwell.lms.identity import identify
from askwell.lms.probe_cache import Identified, key_of_files
from askwell.lms.tokenizer_files import named_tokenizer

Precision = Literal["auto", "float32", "bfloat16", "float16", "float64"]


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
    """Return the frozen LM of that name: testbed:bert, smollm2, a checkpoint folder, a .gguf file, or a name on the
    hub.

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
        return _in_memory(name, tokenizer, revision, device, dtype, compiled)
    if isinstance(tokenizer, PreTrainedTokenizerBase):
        raise BadOption("a tokenizer in memory goes with a model in memory; for a stored LM, name a folder or hub name")
    chosen_device = choose_device(device)
    chosen_dtype = choose_dtype(dtype, chosen_device)
    apart = None if tokenizer is None else named_tokenizer(tokenizer)
    started = time.time()
    model, used, folder = load_checkpoint_files(str(built_in_folder(str(name)) or name), revision, apart, device_map)
    key = None if apart is not None or folder is None else key_of_files(public_name(name), folder, started)
    known = None if key is None else Identified.known(key)
    if known is None:
        family = family_of(model.config).name
        known = Identified(
            key=key or {}, identity=identify(model, used, name=public_name(name), family=family, folder=folder)
        )
        if key is not None:
            known.keep()
    return FrozenLM(
        model,
        used,
        identity=known.identity,
        as_stored=True,
        source=str(name),
        tokenizer_source=None if tokenizer is None else str(tokenizer),
        device=None if device_map is not None else chosen_device,
        dtype=None if device_map is not None else chosen_dtype,
        compiled=compiled,
    )


def _in_memory(
    model: PreTrainedModel,
    tokenizer: str | Path | PreTrainedTokenizerBase | None,
    revision: str | None,
    device: str | int | torch.device | None,
    dtype: Precision | torch.dtype,
    compiled: bool,
) -> FrozenLM:
    if revision is not None:
        raise BadOption(f"revision={revision!r} is for LMs on the hub; this model is already in memory")
    if tokenizer is None:
        raise BadOption("a model in memory needs its tokenizer: load_lm(model, tokenizer)")
    used = tokenizer if isinstance(tokenizer, PreTrainedTokenizerBase) else named_tokenizer(tokenizer)
    source = model.config._name_or_path or None  # where a saved mixture finds its LM
    return FrozenLM(
        model,
        used,
        name=None if source is None else public_name(source),
        device=None if device is None else choose_device(device),
        dtype=None if dtype == "auto" else choose_dtype(dtype, model.device),
        compiled=compiled,
    )


def choose_device(device: str | int | torch.device | None) -> torch.device:
    """Return the device of that name; without a name CUDA, MPS or the CPU, whichever is available first."""
    if device is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # any of these if it is missing
        raise BadOption(
            f"`device` {device} cannot be used here: {str(error).splitlines()[0]}", device="--device"
        ) from None
    if chosen.type == "meta":
        raise BadOption("`device` meta has no data; name cpu, cuda or mps", device="--device")
    return chosen


def choose_dtype(dtype: Precision | torch.dtype, device: torch.device) -> torch.dtype:
    """Return the precision of that name; "auto" is half precision where it is faster."""
    known = {name: getattr(torch, name) for name in get_args(Precision) if name != "auto"}
    if isinstance(dtype, torch.dtype) and dtype in known.values():
        return dtype
    if dtype in known:
        return known[dtype]
    if dtype != "auto":
        raise BadOption(f"dtype {dtype}: an LM runs in one of {', '.join(known)}, or auto")
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    return torch.float32  # on CPUs half precision is slower, and can crash


def available_threads() -> int:
    """Return the CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(threads: int | None) -> int:
    """Set how many CPU threads torch uses (default: OMP_NUM_THREADS, or all), and return their number."""
    if threads is not None and threads < 1:
        raise BadOption(f"`threads` {threads}: at least one is needed", threads="--threads")
    if threads is not None or "OMP_NUM_THREADS" not in os.environ:  # torch respects it by itself
        torch.set_num_threads(threads or available_threads())
    return torch.get_num_threads()
