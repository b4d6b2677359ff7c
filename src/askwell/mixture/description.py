"""The config.json of a saved mixture, and what is known about a mixture besides its tensors."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from askwell.data.facts import Fact
from askwell.files import problem_in
from askwell.lms.identity import LMIdentity
from askwell.mixture.answers import AnswerKind
from askwell.mixture.candidates import Candidates
from askwell.specs.mixture_spec import BEGIN_OF_0_1_0, NO_OPENING_WRITTEN, MixtureSpec


class About(BaseModel):
    """What is known about a mixture: what it was learned from, and what it scores. It is shown on the model card."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    relation: str | None = None
    """The name of the relation; None if nothing was learned."""
    relation_sha256: str | None = None
    """The hash of its facts."""
    split_by: str | None = None
    """How a single file of facts was split."""
    learned_from: dict[str, Any] = {}
    """What it was trained on and how, including relation and split; empty if it is untuned."""
    scores: dict[str, dict[str, Any]] = {}
    """What it scores, by the split."""
    dev_answers: dict[str, Any] | None = None
    """How probable its answers to dev questions were, and which were right: thresholds are learned from it."""

    @model_validator(mode="before")
    @classmethod
    def _say_everything_in_both_places(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        learned_from = given.get("learned_from", {})
        if not isinstance(learned_from, dict) or not isinstance(learned_from.get("relation", {}), dict):
            raise ValueError("learned_from is not an object, or names no relation")
        learned_from = dict(learned_from)
        if given.get("relation") is not None:
            learned_from.setdefault("relation", {"name": given["relation"], "sha256": given.get("relation_sha256")})
        if given.get("split_by") is not None:
            learned_from["split_by"] = given["split_by"]
        relation = learned_from.get("relation", {})
        found = {
            "relation": relation.get("name"),
            "relation_sha256": relation.get("sha256"),
            "split_by": learned_from.get("split_by"),
        }
        return {**given, **found, "learned_from": learned_from}


class SavedPrompt(BaseModel):
    """A saved template."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    template: str
    weight: float | None = None
    """Its weight in the prompt file, if there was one."""
    reason: str | None = None
    """Why it was left out; None for a prompt of the mixture."""


class SavedFile(BaseModel):
    """A file beside config.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str
    bytes: int


class Description(BaseModel):
    """config.json of a saved mixture."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    format: str
    version: int
    base_lm: LMIdentity
    base_lm_has_public_name: bool
    """Whether the LM can be loaded by its name."""
    tokenizer: str | None = None
    """The name of the tokenizer, if it is not the one stored with the LM's weights."""
    mixture_spec: MixtureSpec
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
    """T; None if the weights have none. In version 1, static weights also had one."""
    learned_from: dict[str, Any]
    scores: dict[str, dict[str, Any]]
    files: dict[str, SavedFile]
    sha256: str
    """The hash of all the rest."""
    dev_answers: dict[str, Any] | None = None
    """What abstention.json holds, if it is there."""

    @model_validator(mode="before")
    @classmethod
    def _read_older(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("mixture_spec"), dict) or "answers" in given:
            return given
        return {**given, "mixture_spec": {"answers": "one-token", **given["mixture_spec"]}}

    @field_validator("mixture_spec", mode="before")
    @classmethod
    def _read_0_1_0(cls, given: Any) -> Any:
        return {"begin": BEGIN_OF_0_1_0, **NO_OPENING_WRITTEN, **given} if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _say_what_is_known(self) -> Self:
        """Refuses a document whose `learned_from` or `scores` nobody could show."""
        try:
            _ = self.about
        except ValidationError as error:
            raise ValueError(f"learned_from: {problem_in(error)}") from None
        return self

    @property
    def about(self) -> About:
        """What is known about the mixture."""
        return About(learned_from=self.learned_from, scores=self.scores, dev_answers=self.dev_answers)
