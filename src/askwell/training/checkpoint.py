"""Checkpoints: the state of a run between two steps, from which it can be resumed.

A checkpoint carries the id of its run, which is a hash of everything that determines it, and a hash of its own content,
so what is read is what the same run wrote.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from askwell.answers.candidates import Candidates
from askwell.data.facts import Relation
from askwell.errors import BadOption
from askwell.files import hash_json, hash_of, read_tensors, refuse_later_version, write_tensors
from askwell.specs.mixture_spec import WeightingName
from askwell.specs.training_spec import AutoPromptSpec, TrainingSpec
from askwell.training.history import HistoryLine

if TYPE_CHECKING:
    from torch import Tensor

    from askwell.mixture.mixture import Mixture

CHECKPOINT = "checkpoint.safetensors"
_VERSION = 1
_KEPT = "kept-"
_NOTES = ("prompts", "stretches", "loss", "facts", "pairs", "weighting", "weighting_scores", "to_beat")


def write_checkpoint(folder: Path, run: str, tensors: "Mapping[str, Tensor]", notes: Mapping[str, Any]) -> None:
    """Write the state of the run with that id."""
    write_tensors(folder / CHECKPOINT, tensors, {"version": _VERSION, "run": run, **notes})


def read_checkpoint(folder: Path, run: str) -> "tuple[dict[str, Tensor], dict[str, Any]] | None":
    """Return the tensors and notes of the state in a folder, None if there is none; refuse the state of another run."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    tensors, notes = read_tensors(path)
    refuse_later_version(path, notes, _VERSION)
    if notes.get("run") != run:
        raise BadOption(
            f"{path} is the state of a run with a different LM, facts, prompts, settings or version of askwell; resume "
            "with the options of that run, or name another folder"
        )
    return tensors, notes


def remove_checkpoint(folder: Path) -> None:
    """Remove the state in a folder, and the leftovers of a process that was killed while writing one."""
    (folder / CHECKPOINT).unlink(missing_ok=True)
    for unfinished in folder.glob(f".{CHECKPOINT}.*"):
        shutil.rmtree(unfinished, ignore_errors=True)


@dataclass
class State:
    """Everything that a training run needs to continue after a stretch of its schedule."""

    history: list[HistoryLine]
    parameters: "dict[str, Tensor]"
    kept: "dict[int, dict[str, Tensor]]"
    """The states that may turn out to be the best, by the round in which they were scored."""
    moments: "dict[str, Tensor]"
    """Adam's moments."""
    means: "dict[str, Tensor]"
    """The means over the last steps of everything that is tuned, if the schedule uses them."""
    prompts: int
    """How many prompts were in use when the first step was taken."""
    stretches: int = 0
    """Stretches done."""
    loss: float = 0.0
    """The sum of the losses since dev was last scored."""
    facts: int = 0
    """The number of facts in that sum."""
    pairs: int | None = None
    """The budget in pairs, where it was measured from minutes."""
    weighting: WeightingName = "static"
    """How the prompts are weighed; it may have been chosen, by these scores."""
    weighting_scores: dict[WeightingName, float] = field(default_factory=dict)
    to_beat: list[float] = field(default_factory=list)
    """The log-losses of dev facts with fitted weights, if tuned prompts are kept only if they are clearly better."""


def run_id(
    mixture: "Mixture", relation: Relation, spec: TrainingSpec | AutoPromptSpec, candidates: Candidates | None = None
) -> str:
    """Return a hash of everything that determines a training run: LM, prompts, facts, settings, first state, precision
    and device."""
    return hash_json(
        {
            "lm": mixture.lm.identity.model_dump(exclude={"name", "revision"}),
            "runs": [str(mixture.lm.dtype), mixture.lm.device.type],
            "prompts": [[prompt.template.text, prompt.template.weight] for prompt in mixture.prompts],
            "facts": relation.digest,
            "mixture": mixture.spec.model_dump(exclude={"context_scores"}),
            "training": spec.model_dump(),
            "candidates": None if candidates is None else candidates.digest,
            "start": hash_of(mixture.state_dict()),
        }
    )


def save_checkpoint(folder: Path, run: str, state: State) -> None:
    """Write the state of the training run with that id."""
    parts = {"parameters": state.parameters, "moments": state.moments, "means": state.means}
    parts |= {f"{_KEPT}{round_}": tensors for round_, tensors in state.kept.items()}
    tensors = {f"{part}/{name}": tensor for part, content in parts.items() for name, tensor in content.items()}
    notes = {name: getattr(state, name) for name in _NOTES}
    write_checkpoint(folder, run, tensors, {"history": [line.as_json() for line in state.history], **notes})


def load_checkpoint(folder: Path, run: str, mixture: "Mixture") -> State | None:
    """Return the state in a folder, None if there is none; refuse the state of another run."""
    found = read_checkpoint(folder, run)
    if found is None:
        return None
    tensors, notes = found
    parts: dict[str, dict[str, Tensor]] = {"parameters": {}, "moments": {}, "means": {}}
    for name, tensor in tensors.items():
        part, _, inner = name.partition("/")
        parts.setdefault(part, {})[inner] = tensor.to(mixture.lm.device)
    return State(
        history=[HistoryLine(**line) for line in notes["history"]],
        parameters=parts["parameters"],
        kept={int(part.removeprefix(_KEPT)): parts[part] for part in parts if part.startswith(_KEPT)},
        moments=parts["moments"],
        means=parts["means"],
        **{name: notes[name] for name in _NOTES},
    )
