"""The choices of AutoPrompt's search for trigger tokens."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


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
