"""The hyperparameters of AutoPrompt's search for trigger tokens, and of fine-tuning a whole LM."""

from typing import Literal

from pydantic import Field, model_validator

from askwell.specs.base import Spec

BaselineName = Literal[
    "lama",
    "few-shot",
    "lpaqa-top1",
    "lpaqa-uniform",
    "lpaqa-weights",
    "lpaqa-product",
    "optiprompt-manual",
    "optiprompt-random",
    "autoprompt",
    "fine-tuning",
]


class AutoPromptSpec(Spec):
    """How trigger tokens are searched for. The defaults are those that AutoPrompt used for facts."""

    triggers: int = Field(default=5, ge=1, le=100)
    """Number of trigger tokens, if no prompt is given to start from."""
    candidates: int = Field(default=10, ge=1, lt=2**63)
    """Tokens tried in place of one trigger in each iteration."""
    iterations: int = Field(default=1000, ge=1, lt=2**63)
    """Number of iterations; each tries to replace one trigger."""
    sampled_facts: int = Field(default=56, ge=1, lt=2**63)
    """Train facts drawn for the gradient of each iteration, and again for trying its candidates."""
    start: Literal["mask", "random"] = "mask"
    """Start from mask tokens, each of which is later replaced by a word, or from words drawn at random."""
    allow_ys: bool = False
    """Allow tokens that spell a right answer of the relation, in any split."""
    allow_proper_nouns: bool = False
    """Allow tokens that begin a word with a capital letter."""
    whole_words: bool = False
    """Use only tokens that are whole words, so that the prompt can be typed as text."""

    @model_validator(mode="after")
    def _fits_together(self) -> "AutoPromptSpec":
        if self.start == "mask" and self.iterations < self.triggers:
            raise ValueError(
                f"{self.iterations} iterations cannot replace all {self.triggers} masks with words; use at least "
                f"{self.triggers} iterations, or start from random words"
            )
        return self


class FineTuningSpec(Spec):
    """How all weights of an LM are tuned: AdamW with a linear warm-up and a linear decay to 0."""

    epochs: int = Field(default=10, ge=0, lt=2**63)
    """Passes over the train facts; dev is scored after each."""
    batch_facts: int = Field(default=16, ge=1, lt=2**63)
    """Facts per step."""
    learning_rate: float = Field(default=2e-5, gt=0)
    """AdamW's peak learning rate."""
    weight_decay: float = Field(default=0.01, ge=0)
    """AdamW's weight decay, on all weights except biases and normalisation layers."""
    warm_up: float = Field(default=0.1, ge=0, lt=1)
    """The fraction of the steps over which the learning rate grows."""
    dropout: bool = True
    """Train with the dropout of the LM's own config."""
