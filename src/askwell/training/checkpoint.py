"""The state of a training run between two stretches of its schedule, from which it can go on."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from askwell.data.facts import Relation
from askwell.errors import BadOption
from askwell.files import hash_of, read_tensors, write_tensors
from askwell.mixture.candidates import Candidates
from askwell.mixture.mixture import Mixture
from askwell.specs.training import TrainingSpec
from askwell.training.result import HistoryLine

CHECKPOINT = "checkpoint.safetensors"
_KEPT = "kept-"
_NOTES = ("stretches", "loss", "facts", "pairs")


@dataclass
class State:
    """All that a training run needs to go on after a stretch."""

    history: list[HistoryLine]
    parameters: dict[str, Tensor]
    kept: dict[int, dict[str, Tensor]]
    """The states that may turn out to be the best, by the round in which they were scored."""
    moments: dict[str, Tensor]
    """Adam's moments."""
    means: dict[str, Tensor]
    """The means over the last steps of all that is tuned, where the schedule takes them."""
    stretches: int = 0
    """Stretches done."""
    loss: float = 0.0
    """The sum of the losses since dev was last scored."""
    facts: int = 0
    """The number of facts in that sum."""
    pairs: int | None = None
    """The budget in pairs, where it was measured from minutes."""


def run_id(mixture: Mixture, relation: Relation, spec: TrainingSpec, candidates: Candidates | None = None) -> str:
    """The hash of all that decides how a run goes: LM, prompts, facts, settings, first state, precision, device."""
    description = {
        "lm": mixture.lm.identity.model_dump(exclude={"name", "revision"}),
        "runs": [str(mixture.lm.dtype), mixture.lm.device.type],
        "prompts": [[prompt.template.text, prompt.template.weight] for prompt in mixture.prompts],
        "facts": relation.digest,
        "mixture": mixture.spec.model_dump(),
        "training": spec.model_dump(),
        "candidates": None if candidates is None else candidates.digest,
        "start": hash_of(mixture.state_dict()),
        "format": 2,
    }
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def save_checkpoint(folder: Path, run: str, state: State) -> None:
    """Writes the state of the run of that name."""
    parts = {"parameters": state.parameters, "moments": state.moments, "means": state.means}
    parts |= {f"{_KEPT}{round_}": tensors for round_, tensors in state.kept.items()}
    tensors = {f"{part}/{name}": tensor for part, content in parts.items() for name, tensor in content.items()}
    notes = {name: getattr(state, name) for name in _NOTES}
    history = [line.as_json() for line in state.history]
    write_tensors(folder / CHECKPOINT, tensors, {"run": run, "history": history, **notes})


def load_checkpoint(folder: Path, run: str, device: torch.device) -> State | None:
    """The state in a folder, None if there is none; a state of another run is refused."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    tensors, notes = read_tensors(path)
    if notes["run"] != run:
        raise BadOption(
            f"{path} is the state of a run with another LM, other facts, other prompts or other settings, or of "
            "another version of askwell; resume with the options of that run, or name another folder"
        )
    parts: dict[str, dict[str, Tensor]] = {"parameters": {}, "moments": {}, "means": {}}
    for name, tensor in tensors.items():
        part, _, inner = name.partition("/")
        parts.setdefault(part, {})[inner] = tensor.to(device)
    return State(
        history=[HistoryLine(**line) for line in notes["history"]],
        parameters=parts["parameters"],
        kept={int(part.removeprefix(_KEPT)): parts[part] for part in parts if part.startswith(_KEPT)},
        moments=parts["moments"],
        means=parts["means"],
        **{name: notes[name] for name in _NOTES},
    )
