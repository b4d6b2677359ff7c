"""The state of a training run between two epochs, in one safetensors file: no pickle, and never half-written."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as save_tensors
from torch import Tensor

from askwell.errors import BadOption, DamagedFile
from askwell.facts import Relation
from askwell.mixture import Mixture
from askwell.specs import TrainingSpec
from askwell.write import write_whole

CHECKPOINT = "checkpoint.safetensors"


@dataclass
class State:
    """All that a training run needs to go on after an epoch."""

    history: list[dict[str, Any]]
    parameters: dict[str, Tensor]
    best: dict[str, Tensor]
    moments: dict[str, Tensor]
    """Adam's moments."""


def run_id(mixture: Mixture, relation: Relation, spec: TrainingSpec) -> str:
    """The hash of all that decides how a run goes: LM, prompts, facts, settings, first state, precision, device."""
    description = {
        "lm": mixture.lm.identity.model_dump(exclude={"name", "revision"}),
        "runs": [str(mixture.lm.dtype), mixture.lm.device.type],
        "prompts": [[prompt.template.text, prompt.template.weight] for prompt in mixture.prompts],
        "facts": relation.digest,
        "mixture": mixture.spec.model_dump(),
        "training": spec.model_dump(),
        "start": _hash_of({name: tensor.cpu().contiguous() for name, tensor in mixture.state_dict().items()}),
    }
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def save_checkpoint(folder: Path, run: str, state: State) -> None:
    """Writes the state of the run of that name."""
    parts = {"parameters": state.parameters, "best": state.best, "moments": state.moments}
    tensors = {
        f"{part}/{name}": tensor.detach().cpu().contiguous().clone()
        for part, content in parts.items()
        for name, tensor in content.items()
    }
    # The hash stands in the file's own header, and covers the tensors that follow it.
    notes = {"run": run, "history": json.dumps(state.history), "sha256": _hash_of(tensors)}
    write_whole(folder / CHECKPOINT, save_tensors(tensors, metadata=notes))


def load_checkpoint(folder: Path, run: str, device: torch.device) -> State | None:
    """The state in a folder, None if there is none; a state of another run is refused."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            notes = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - a handle, not a mapping
        history = json.loads(notes["history"])
    except (SafetensorError, KeyError, json.JSONDecodeError, OSError):
        raise DamagedFile(f"{path} is truncated or altered; remove it to start the run anew") from None
    if notes.get("sha256") != _hash_of(tensors):
        raise DamagedFile(f"{path} was altered; remove it to start the run anew")
    if notes.get("run") != run:
        raise BadOption(
            f"{path} is the state of a run with another LM, other facts, other prompts or other settings; resume with "
            "the options of that run, or name another folder"
        )
    parts: dict[str, dict[str, Tensor]] = {"parameters": {}, "best": {}, "moments": {}}
    for name, tensor in tensors.items():
        part, _, inner = name.partition("/")
        parts[part][inner] = tensor.to(device)
    return State(history, **parts)


def _hash_of(tensors: dict[str, Tensor]) -> str:
    return hashlib.sha256(save_tensors(dict(sorted(tensors.items())))).hexdigest()
