"""The state of a training run between two stretches of its schedule, from which it can be resumed."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError
from torch import Tensor

from askwell.data.facts import Relation
from askwell.errors import BadOption, DamagedFile
from askwell.files import hash_of, problem_in, read_tensors, write_tensors
from askwell.mixture.candidates import Candidates
from askwell.mixture.mixture import Mixture
from askwell.specs.training_spec import TrainingSpec
from askwell.training.history import HistoryLine

CHECKPOINT = "checkpoint.safetensors"
_KEPT = "kept-"
_NOTES = ("stretches", "loss", "facts", "pairs")


class DevScores(BaseModel):
    """The scores on dev in a line of a history, by which the best state is chosen."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float | None]  # ty: ignore[incompatible-mutable-override]

    p_at_1: Annotated[float, Field(alias="P@1", ge=0, le=100)]
    log_loss: Annotated[float, Field(allow_inf_nan=False)] | None
    facts: NonNegativeInt


class _Line(BaseModel):
    """A line of the history, see `HistoryLine`."""

    model_config = ConfigDict(extra="forbid")

    round: NonNegativeInt
    pairs: NonNegativeInt
    train_loss: float | None
    dev: DevScores
    effective_prompts: float
    temperature: float | None = None


class _Notes(BaseModel):
    """What a checkpoint contains besides its tensors."""

    model_config = ConfigDict(extra="forbid")

    run: str
    history: Annotated[list[_Line], Field(min_length=1)]
    stretches: NonNegativeInt
    loss: Annotated[float, Field(allow_inf_nan=False)]
    facts: NonNegativeInt
    pairs: PositiveInt | None


@dataclass
class State:
    """Everything that a training run needs to continue after a stretch."""

    history: list[HistoryLine]
    parameters: dict[str, Tensor]
    kept: dict[int, dict[str, Tensor]]
    """The states that may turn out to be the best, by the round in which they were scored."""
    moments: dict[str, Tensor]
    """Adam's moments."""
    means: dict[str, Tensor]
    """The means over the last steps of everything that is tuned, if the schedule uses them."""
    stretches: int = 0
    """Stretches done."""
    loss: float = 0.0
    """The sum of the losses since dev was last scored."""
    facts: int = 0
    """The number of facts in that sum."""
    pairs: int | None = None
    """The budget in pairs, where it was measured from minutes."""


def run_id(mixture: Mixture, relation: Relation, spec: TrainingSpec, candidates: Candidates | None = None) -> str:
    """The hash of everything that determines a run: LM, prompts, facts, settings, first state, precision, device."""
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


def load_checkpoint(folder: Path, run: str, mixture: Mixture) -> State | None:
    """The state in a folder, None if there is none; a state of another run is refused."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    tensors, notes = read_tensors(path)
    try:
        known = _Notes.model_validate(notes)
    except ValidationError as error:
        raise _damaged(path, problem_in(error)) from None
    if known.run != run:
        raise BadOption(
            f"{path} is the state of a run with a different LM, facts, prompts, settings or version of askwell; resume "
            "with the options of that run, or name another folder"
        )
    parts: dict[str, dict[str, Tensor]] = {"parameters": {}, "moments": {}, "means": {}}
    for name, tensor in tensors.items():
        part, _, inner = name.partition("/")
        parts.setdefault(part, {})[inner] = tensor.to(mixture.lm.device)
    history = [_as_written(line, written) for line, written in zip(known.history, notes["history"], strict=True)]
    _need_fitting(path, parts, history, mixture)
    return State(
        history=history,
        parameters=parts["parameters"],
        kept={int(part.removeprefix(_KEPT)): parts[part] for part in parts if part.startswith(_KEPT)},
        moments=parts["moments"],
        means=parts["means"],
        **{name: getattr(known, name) for name in _NOTES},
    )


def _as_written(line: _Line, written: Mapping[str, Any]) -> HistoryLine:
    """The line with its scores in the order in which they were written, so that a resumed run writes the same file."""
    fields = line.model_dump(by_alias=True)
    fields["dev"] = {name: fields["dev"][name] for name in written["dev"]}
    return HistoryLine(**fields)


def _need_fitting(
    path: Path, parts: Mapping[str, Mapping[str, Tensor]], history: Sequence[HistoryLine], mixture: Mixture
) -> None:
    """Raises unless the tensors are those that a run of this mixture keeps."""
    own = mixture.state_dict()
    if [line.round for line in history] != list(range(len(history))):
        raise _damaged(path, "its history is not in order")
    states = {part for part in parts if part.startswith(_KEPT)}
    if not states <= {f"{_KEPT}{line.round}" for line in history}:
        raise _damaged(path, "it holds the state of a round that is not in its history")
    for part in ("parameters", *sorted(states)):
        if parts[part].keys() != own.keys():
            raise _damaged(path, f"{part} are not those of the mixture")
    if not parts["means"].keys() <= own.keys():
        raise _damaged(path, "means are not those of the mixture")
    for part in ("parameters", "means", *sorted(states)):
        for name, tensor in parts[part].items():
            if tensor.shape != own[name].shape or tensor.dtype != own[name].dtype:
                raise _damaged(path, f"{part}/{name} has another shape or type than the mixture's")
    for part, tensors in parts.items():
        for name, tensor in tensors.items():
            if tensor.isnan().any():
                raise _damaged(path, f"{part}/{name} holds NaN values")


def _damaged(path: Path, problem: str) -> DamagedFile:
    return DamagedFile(f"{path} is damaged: {problem}; remove it to start the run over")
