"""What baselines report as they progress, and their results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from askwell.answers.kinds import EncodedRelation
from askwell.answers.reply import count_reasons
from askwell.mixture.description import About
from askwell.mixture.learned_from import LearnedFrom, RelationRecord
from askwell.mixture.mixture import Mixture
from askwell.training.history import TrainingProgress


@dataclass(frozen=True)
class BaselineStep:
    """What a search or fine-tuning scored on dev after a step."""

    number: int
    """The number of the iteration or epoch, 0 before the first."""
    loss: float | None
    """Mean -log p(y | x) of the train facts that it was tried or trained on; None before fine-tuning."""
    dev: dict[str, Any]
    template: str | None = None
    """The prompt that a search has tried."""
    tokens: list[int] = field(default_factory=list)
    unwanted: int = 0
    """How many of its tokens are not allowed, such as masks."""

    def as_json(self) -> dict[str, Any]:
        """Return the step as it is written to history.jsonl."""
        if self.template is None:
            return {"epoch": self.number, "train_loss": self.loss, "dev": self.dev}
        found = {"template": self.template, "tokens": self.tokens, "unwanted": self.unwanted}
        return {"iteration": self.number, **found, "loss": self.loss, "dev": self.dev}


@dataclass(frozen=True)
class BaselineProgress:
    """The progress of a search or of fine-tuning."""

    done: int
    total: int
    unit: Literal["iterations", "epochs"]
    loss: float | None
    """Mean -log p(y | x) of the facts that the last step was tried or trained on."""
    record: BaselineStep | None
    """The new line of the history, when dev has been scored."""
    history: tuple[BaselineStep, ...]


AnyProgress = TrainingProgress | BaselineProgress


@dataclass(frozen=True)
class BaselineRun:
    """The result of a baseline, ready to be evaluated."""

    mixture: Mixture
    about: About
    """What it was learned from, and what it scores on dev, if dev was used."""
    history: tuple[Any, ...] = ()
    """The dev scores while it was learned, each a BaselineStep, or a HistoryLine of training."""

    @property
    def learned_from(self) -> LearnedFrom:
        """What it was learned from."""
        return self.about.learned_from or LearnedFrom()


def about_learning(mixture: Mixture, encoded: EncodedRelation, dev: Mapping[str, Any], **more: Any) -> About:
    """Return what a mixture was learned from, with `more` about how, and its scores on dev."""
    learned_from = LearnedFrom(
        train_facts=len(encoded.split("train")),
        dev_facts=len(encoded.split("dev")),
        left_out={split: count_reasons(encoded.left_out(split)) for split in ("train", "dev")},
        **more,
    )
    scores = {"dev": {**dev, "vocabulary": mixture.answering(kind=encoded.kind).vocabulary}}
    return About(relation=RelationRecord.of(encoded.relation), learned_from=learned_from, scores=scores)
