"""What baselines tell while they are made, and what they leave."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from askwell.mixture.description import About
from askwell.mixture.encode import EncodedRelation, LeftOutFact, count_reasons
from askwell.mixture.mixture import Mixture
from askwell.training.result import TrainingProgress


@dataclass(frozen=True)
class SearchProgress:
    """Where a search stands."""

    iteration: int
    iterations: int
    loss: float
    """Mean -log p(y | x) of the facts on which the last candidates were tried, with the trigger that was kept."""
    record: dict[str, Any] | None
    """The line of the history, when a trigger was swapped and dev has been scored."""
    history: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class FineTuningProgress:
    """Where fine-tuning stands."""

    epoch: int
    epochs: int
    record: dict[str, Any]
    history: tuple[dict[str, Any], ...]


BaselineProgress = TrainingProgress | SearchProgress | FineTuningProgress


@dataclass(frozen=True)
class BaselineRun:
    """What a baseline has made, ready to be evaluated."""

    mixture: Mixture
    about: About
    """What it was learned from, and what it scores on dev, if dev was used."""
    history: tuple[dict[str, Any], ...] = ()
    left_out: dict[str, tuple[LeftOutFact, ...]] = field(default_factory=dict)
    """Facts of train and dev that could not be asked, where they were used."""


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
