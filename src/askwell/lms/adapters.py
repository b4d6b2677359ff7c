"""LMs that are stored as an adapter of another (LoRA and its like, by PEFT), merged into its weights when loaded."""

import json
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from askwell.errors import LMUnavailable
from askwell.lms.checkpoints import built_in_folder, find_tokenizer, load_checkpoint_files, quiet

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
