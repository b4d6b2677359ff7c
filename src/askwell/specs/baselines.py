"""The hyperparameters of AutoPrompt's search for trigger tokens, and of fine-tuning a whole LM."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

BaselineName = Literal[
    "lama",
    "lpaqa-top1",
    "lpaqa-uniform",
    "lpaqa-weights",
    "lpaqa-product",
    "optiprompt-manual",
    "optiprompt-random",
    "autoprompt",
    "fine-tuning",
]


class AutoPromptSpec(BaseModel):
    """How trigger tokens are searched for. The defaults are those that AutoPrompt took for facts."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    triggers: int = Field(default=5, ge=1, le=100)
    """Trigger tokens of the prompt, where no prompt is given to start from."""
    candidates: int = Field(default=10, ge=1)
    """Tokens that are tried at one trigger's place in an iteration."""
    iterations: int = Field(default=1000, ge=1)
    """Triggers that are looked at, one an iteration."""
    sampled_facts: int = Field(default=56, ge=1)
    """Train facts that are drawn for the gradient of an iteration, and again for trying its candidates."""
    start: Literal["mask", "random"] = "mask"
    """Start from mask tokens, each of which is then swapped for a word, or from words drawn at random."""
    allow_ys: bool = False
    """Let tokens that spell a right answer of the relation, of any split, into the prompt."""
    allow_proper_nouns: bool = False
    """Let tokens that begin a word with a capital letter into the prompt."""
    whole_words: bool = False
    """Take only tokens that are whole words, so that the prompt is text that anyone can type."""

    @model_validator(mode="after")
    def _fits_together(self) -> "AutoPromptSpec":
        if self.start == "mask" and self.iterations < self.triggers:
            raise ValueError(
                f"{self.iterations} iterations cannot swap all {self.triggers} masks for words; take at least "
                f"{self.triggers} iterations, or start from random words"
            )
        return self


class FineTuningSpec(BaseModel):
    """How all weights of an LM are tuned: AdamW with a linear warm-up and a linear decay to 0."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    epochs: int = Field(default=10, ge=0)
    """Passes over the train facts; dev is scored after each."""
    batch_facts: int = Field(default=16, ge=1)
    """Facts in a step."""
    learning_rate: float = Field(default=2e-5, gt=0)
    """AdamW's step size at its peak."""
    weight_decay: float = Field(default=0.01, ge=0)
    """AdamW's decay of all weights but biases and normalisations."""
    warm_up: float = Field(default=0.1, ge=0, lt=1)
    """The fraction of the steps in which the step size grows."""
    dropout: bool = True
    """Train with the dropout of the LM's own config."""
