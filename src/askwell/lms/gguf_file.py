"""What transformers leaves undone when it reads a GGUF file."""

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from gguf import GGUFReader
from transformers import PreTrainedTokenizerBase, modeling_gguf_pytorch_utils

_ADD_BOS = "tokenizer.ggml.add_bos_token"


def honour_bos(path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Lets the tokenizer put its BOS token first where the file says so."""
    if _says(path, _ADD_BOS) and tokenizer.bos_token is not None:
        tokenizer.add_bos_token = True


def _says(path: Path, flag: str) -> bool:
    try:
        from transformers.integrations.gguf.reader import read_gguf_metadata
    except ImportError:  # an older release: gguf's own reader, which takes seconds to read a vocabulary
        field = GGUFReader(path).get_field(flag)
        return field is not None and bool(field.contents())
    return bool(read_gguf_metadata(str(path))[0].get(flag))


@contextmanager
def no_bar() -> Generator[None]:
    """Keeps the bar that transformers draws while it converts tensors off the terminal."""
    module: Any = modeling_gguf_pytorch_utils
    tqdm = module.tqdm
    module.tqdm = partial(tqdm, disable=True)
    try:
        yield
    finally:
        module.tqdm = tqdm
