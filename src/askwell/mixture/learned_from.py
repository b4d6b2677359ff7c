"""What a mixture was learned from, and how it answered dev questions, as it is recorded with runs and saved mixtures.
It is read without torch."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator

from askwell.data.facts import Relation
from askwell.lms.identity import LMIdentity
from askwell.specs.training_spec import AutoPromptSpec, BaselineName, FineTuningSpec, TrainingSpec

MIXTURE = "mixture"
"""The folder of the mixture, inside that of a run."""
TUNED_LM = "fine-tuned-lm"
"""The folder of the LM that fine-tuning has made, inside that of a run."""
TENSORS, CARD = "mixture.safetensors", "README.md"
NEW_TENSORS = f"{TENSORS}.new"
LM_PATH = "lm_path.txt"
"""Where on this machine the LM was, if it has no public name; it is not part of the mixture and is not uploaded."""
TOKENIZER_PATH = "tokenizer_path.txt"
"""The same for a tokenizer that is not beside the LM's weights."""
FACTS_PATH = "facts_path.txt"
"""The same for the facts that it was learned from."""
CONFIG = "config.json"
"""The file that describes a saved mixture."""
MIXTURE_FILES = (TENSORS, NEW_TENSORS, CARD, LM_PATH, TOKENIZER_PATH, FACTS_PATH, CONFIG)
NOTHING_FOUND = "No step of tuning was better on dev: the vectors of the prompts are as they were at the start."
"""Shown where a score is called tuned although `LearnedFrom.found_nothing`."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class RelationRecord(_Part):
    """The facts that were learned from and asked."""

    name: str
    sha256: str | None = None
    """The hash of the facts."""
    split_by: str | None = None
    """How a single file was split; None for the usual rule, and for splits that were given."""
    split_seed: int | None = None
    """The seed of the split; None for splits that were given."""
    x: str | None = None
    """The column of x, if it was named."""
    y: str | None = None
    counts: dict[str, int] = {}
    """Lines read, repeated and leaked: see `Counts`."""
    source: str | None = Field(default=None, exclude=True)
    """Where the facts were read. A saved mixture notes it in a file of its own, since it may be a path."""

    @classmethod
    def of(cls, relation: Relation) -> "RelationRecord":
        """Return the record of a relation."""
        origin, counts = relation.origin, relation.counts.as_json()
        return cls(
            name=relation.name,
            sha256=relation.digest,
            split_by=origin.split_by,
            split_seed=origin.seed,
            x=origin.x,
            y=origin.y,
            counts=counts,
            source=origin.source,
        )


class LearnedFrom(_Part):
    """What a mixture was tuned on and how, whatever tuned it; what does not apply is None, and is not written."""

    baseline: BaselineName | None = None
    train_facts: int = 0
    dev_facts: int = 0
    left_out: dict[str, dict[str, int]] = {}
    """Facts of train and dev that could not be used, by split and reason."""
    training: TrainingSpec | None = None
    pairs: int | None = None
    """(fact, prompt) pairs trained on."""
    planned_pairs: int | None = None
    best_pairs: int | None = None
    """Pairs trained on when the vectors that were kept were reached."""
    step_sizes: dict[str, Any] | None = None
    """Adam's step sizes for the vectors, for each layer, and for the weights."""
    finished: bool = True
    """False if it was interrupted."""
    search: AutoPromptSpec | None = None
    prompt: str | None = None
    """The prompt that AutoPrompt found, as a person would write it."""
    prompt_tokens: tuple[str, ...] = ()
    prompt_token_ids: tuple[int, ...] = ()
    reads_back_from_text: bool | None = None
    """Whether the LM's tokenizer turns the written prompt into the same tokens."""
    iterations: int | None = None
    best_iteration: int | None = None
    fine_tuning: FineTuningSpec | None = None
    fine_tuned_from: LMIdentity | None = None
    best_epoch: int | None = None
    prompts_on_train: tuple[dict[str, Any], ...] = ()
    """The train scores of each prompt, where the best of them was taken."""

    @property
    def found_nothing(self) -> bool:
        """Tell whether vectors were tuned, but those that no step had changed were best on dev."""
        tuned = self.training is not None and self.training.tune_vectors
        return tuned and bool(self.pairs) and self.best_pairs == 0

    @model_serializer(mode="wrap")
    def _without_what_does_not_apply(self, write: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {name: value for name, value in write(self).items() if value is not None and value not in ((), [])}


class DevAnswers(_Part):
    """The best answers of a mixture to dev questions: how probable each was, and whether it was right. The probability
    below which answers are withheld at a chosen risk is learned from them (`evaluation/selective.py`)."""

    relation: str
    vocabulary: str
    candidates: str | None
    """The hash of the candidate vocabulary, None for all answers of the LM."""
    facts: int
    left_out: dict[str, int]
    """How many dev facts were not asked, by reason."""
    probabilities: tuple[Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)], ...]
    """Of the best answer to each question, the highest first, so that the order of facts does not matter."""
    right: tuple[Literal[0, 1], ...]
    """1 where this answer is right, 0 where it is wrong."""

    @model_validator(mode="after")
    def _has_an_answer_to_each_question(self) -> "DevAnswers":
        if len(self.probabilities) != len(self.right):
            raise ValueError("each question needs a probability, and a 1 or 0 for whether its answer is right")
        return self
