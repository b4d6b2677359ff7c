"""What is remembered about LMs between starts, in the cache folder: results of checks, and which LM is in a folder.

Probing a model, checking its walk against the public forward pass and hashing its weights take longer than loading it.
The results are valid as long as the LM, the code and the versions of everything that computes are the same, so they
are stored under a hash of all these. An entry that is damaged, or was written for anything else, is ignored and
computed again. Models in memory are always checked, since their computation may have been changed.
"""

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from askwell.errors import CannotWrite
from askwell.files import cache_folder, hash_json, write_whole
from askwell.lms.identity import LMIdentity
from askwell.version import VERSION

# A file that is written twice within a tick of its file system's clock can look unchanged, so nothing is remembered
# about files that are this recent.
_SETTLED_SECONDS = 5.0


class _Entry(BaseModel):
    """Something that was found for a key."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    key: dict[str, Any]
    """Everything that the entry depends on."""

    @classmethod
    def known(cls, key: Mapping[str, Any]) -> Self | None:
        """Return the entry for this key, None if there is none that can be trusted."""
        try:
            stored = json.loads(cls._place(key).read_bytes())
            entry = cls.model_validate(stored["entry"])
        except (OSError, ValueError, KeyError, TypeError, ValidationError):
            return None
        is_whole = stored.get("sha256") == hash_json(stored["entry"])
        return entry if is_whole and hash_json(entry.key) == hash_json(key) else None

    def keep(self) -> None:
        """Write the entry; if that is not possible, it is computed again next time."""
        entry = self.model_dump(mode="json")
        with suppress(CannotWrite):
            write_whole(
                self._place(self.key), json.dumps({"entry": entry, "sha256": hash_json(entry)}, indent=1) + "\n"
            )

    @classmethod
    def _place(cls, key: Mapping[str, Any]) -> Path:
        return cache_folder() / cls.__name__.lower() / f"{hash_json(key)}.json"


class Checked(_Entry):
    """The results of probing an LM and checking its walk."""

    stacks: dict[str, tuple[int, int]]
    """The layers and the width of each stack."""
    before_head: str
    """The name of the module whose output the head reads."""
    walk_agrees: bool
    """Whether the walk of its class, if there is one, agrees with the public model."""


class Identified(_Entry):
    """The identity of the LM in a folder."""

    identity: LMIdentity


def key_of_checks(identity: LMIdentity, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
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
