"""What baselines report as they progress, and their results."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeVar

from askwell.mixture.description import About
from askwell.mixture.encode import EncodedRelation, LeftOutFact, count_reasons
from askwell.mixture.mixture import Mixture
from askwell.training.history import HistoryLine, TrainingProgress


@dataclass(frozen=True)
class SearchStep:
    """A prompt that a search has tried on dev."""

    iteration: int
    template: str
    tokens: list[int]
    unwanted: int
    """How many of its tokens are not allowed, such as masks."""
    loss: float
    """Mean -log p(y | x) of the train facts on which it was tried."""
    dev: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """As written to history.jsonl."""
        return asdict(self)


@dataclass(frozen=True)
class FineTuningEpoch:
    """What an LM scored on dev after an epoch of fine-tuning."""

    epoch: int
    train_loss: float | None
    """Mean -log p(y | x) over the epoch; None before the first."""
    dev: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """As written to history.jsonl."""
        return asdict(self)


@dataclass(frozen=True)
class SearchProgress:
    """The progress of a search."""

    iteration: int
    iterations: int
    loss: float
    """Mean -log p(y | x) of the facts on which the last candidates were tried, with the trigger that was kept."""
    record: SearchStep | None
    """The new line of the history, when a trigger was swapped and dev has been scored."""
    history: tuple[SearchStep, ...]


@dataclass(frozen=True)
class FineTuningProgress:
    """The progress of fine-tuning."""

    epoch: int
    epochs: int
    record: FineTuningEpoch
    history: tuple[FineTuningEpoch, ...]


BaselineLine = HistoryLine | SearchStep | FineTuningEpoch
LineT = TypeVar("LineT", bound=BaselineLine, covariant=True)
BaselineProgress = TrainingProgress | SearchProgress | FineTuningProgress


@dataclass(frozen=True)
class BaselineRun(Generic[LineT]):
    """The result of a baseline, ready to be evaluated."""

    mixture: Mixture
    about: About
    """What it was learned from, and what it scores on dev, if dev was used."""
    history: tuple[LineT, ...] = ()
    """The dev scores during training."""
    left_out: dict[str, tuple[LeftOutFact, ...]] = field(default_factory=dict)
    """Facts of train and dev that could not be asked, if these splits were used."""


def left_out_of(facts: EncodedRelation) -> dict[str, tuple[LeftOutFact, ...]]:
    """The facts of train and dev that could not be asked."""
    return {split: facts.left_out(split) for split in ("train", "dev")}


def about_learning(mixture: Mixture, facts: EncodedRelation, dev: Mapping[str, Any], **more: Any) -> About:
    """What a mixture was learned from, with `more` about how, and its scores on dev."""
    learned_from = {
        "relation": facts.relation.description,
        "train_facts": len(facts.split("train")),
        "dev_facts": len(facts.split("dev")),
        "left_out": {split: count_reasons(without) for split, without in left_out_of(facts).items()},
        **more,
    }
    scores = {"dev": {**dev, "vocabulary": mixture.answer_space.description}}
    return About(learned_from=learned_from, scores=scores)
