"""A file of tensors with notes, whole or not at all, that knows when it was damaged. No pickle."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as save_tensors
from torch import Tensor

from askwell.errors import DamagedFile
from askwell.write import write_whole


def write_tensors(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
    """Writes tensors and JSON notes; the hash of the tensors stands in the file's header."""
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    header = {"notes": json.dumps(notes), "sha256": hash_of(plain)}
    write_whole(path, save_tensors(plain, metadata=header))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the notes of a file that `write_tensors` has written."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - a handle, not a mapping
        notes = json.loads(header["notes"])
    except (SafetensorError, KeyError, json.JSONDecodeError, OSError):
        raise DamagedFile(f"{path} is truncated or altered; remove it to start the run anew") from None
    if header.get("sha256") != hash_of(tensors):
        raise DamagedFile(f"{path} was altered; remove it to start the run anew")
    return tensors, notes


def hash_of(tensors: Mapping[str, Tensor]) -> str:
    """A hash of names, shapes, types and contents."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())}
    return hashlib.sha256(save_tensors(plain)).hexdigest()
