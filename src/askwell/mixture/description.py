"""What is known about a mixture besides its tensors, and the config.json of a saved one."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from askwell.answers.candidates import Candidates
from askwell.answers.kind import AnswerKind
from askwell.data.facts import Fact, Relation
from askwell.lms.identity import LMIdentity
from askwell.specs.mixture_spec import SettledMixtureSpec
from askwell.specs.training_spec import AutoPromptSpec, BaselineName, FineTuningSpec, TrainingSpec


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class RelationRecord(_Part):
    """The facts that were learned from and asked."""

    name: str
    sha256: str | None = None
    """The hash of the facts."""
    split_by: str | None = None
    """How a single file was split; None for splits that were given."""
    counts: dict[str, int] = {}
    """Lines read, repeated and leaked: see `Counts`."""

    @classmethod
    def of(cls, relation: Relation, split_by: str | None = None) -> "RelationRecord":
        """Return the record of a relation."""
        counts = relation.counts.as_json()
        return cls(name=relation.name, sha256=relation.digest, split_by=split_by, counts=counts)


class LearnedFrom(_Part):
    """What a mixture was tuned on and how, whatever tuned it; what does not apply is None."""

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
    """Pairs trained on when the state that was kept was reached."""
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


class About(_Part):
    """What is known about a mixture: what it was learned from, and what it scores. It is shown on the model card."""

    relation: RelationRecord | None = None
    """None if nothing was learned."""
    learned_from: LearnedFrom | None = None
    """None if it is untuned."""
    scores: dict[str, dict[str, Any]] = {}
    """What it scores, by the split."""
    dev_answers: dict[str, Any] | None = None
    """How probable its answers to dev questions were, and which were right: thresholds are learned from it. It is saved
    in abstention.json."""


class SavedPrompt(_Part):
    """A saved template."""

    template: str
    weight: float | None = None
    """Its weight in the prompt file, if there was one."""
    reason: str | None = None
    """Why it was left out; None for a prompt of the mixture."""


class SavedFile(_Part):
    """A file beside config.json."""

    sha256: str
    bytes: int


class Description(About):
    """config.json of a saved mixture."""

    format: Literal["askwell-mixture"] = "askwell-mixture"
    version: Literal[1] = 1
    base_lm: LMIdentity
    base_lm_has_public_name: bool
    """Whether the LM can be loaded by its name."""
    tokenizer: str | None = None
    """The name of the tokenizer, if it is not the one stored with the LM's weights."""
    mixture_spec: SettledMixtureSpec
    prompts: tuple[SavedPrompt, ...]
    left_out_prompts: tuple[SavedPrompt, ...]
    examples: tuple[tuple[Fact, ...], ...] = ()
    """The facts that each prompt shows, in order; empty if none shows any."""
    mixture_weights: tuple[float, ...]
    answers: AnswerKind | None = None
    """What counts as an answer; None for an untuned mixture."""
    candidates: Candidates | None = None
    """What it was tuned to choose from; None if it can answer anything."""
    effective_prompts: float
    temperature: float | None
    """T; None if the weights have none."""
    files: dict[str, SavedFile]
    sha256: str
    """The hash of all the rest."""
