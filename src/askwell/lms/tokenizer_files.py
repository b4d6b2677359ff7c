"""Loads tokenizers: the one beside an LM's weights, one that is named separately, or BERT's from a `vocab.txt`; and
tells whether the hub can be reached for them."""

import json
import time
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Any

import httpx
from huggingface_hub import constants
from transformers import AutoTokenizer, BertTokenizer, PreTrainedTokenizerBase
from transformers.utils import cached_file

from askwell.errors import LMUnavailable

VOCABULARY, SETTINGS = "vocab.txt", "tokenizer_config.json"
_SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
_SETTINGS = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
_SECONDS_TO_ANSWER = 4.0
"""How long the hub is waited for; its own client would try for half a minute."""


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
    vocabulary = _file(source, VOCABULARY, options)
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
    beside = vocabulary.parent / SETTINGS
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
            raise LMUnavailable(f"it is a file; name its folder, or a {VOCABULARY}")
        if not path.is_dir() and str(name).startswith((".", "/", "~")):
            raise LMUnavailable("there is no such folder or file")
        return find_tokenizer(str(name), trust_remote_code=False, **({} if path.is_dir() else hub_options()))
    except LMUnavailable as error:
        raise LMUnavailable(f"`tokenizer` {name}: {error}", tokenizer="--tokenizer") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise LMUnavailable(
            f"`tokenizer` {name}: no tokenizer can be loaded from there ({reason}); name a folder with a tokenizer's "
            f"files, a {VOCABULARY}, or a name on the hub",
            tokenizer="--tokenizer",
        ) from error


def _file(source: str, name: str, options: dict[str, Any]) -> Path | None:
    """Return a file of a folder or of a hub name, if it is there."""
    if "gguf_file" in options:
        return None
    found = cached_file(
        source,
        name,
        revision=options.get("revision"),
        local_files_only=options.get("local_files_only", False),
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if found is None else Path(found)
