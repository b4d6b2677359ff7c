"""The choices that make a mixture, before any of it is tuned."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Initial = Literal["words", "random", "random-full"]


class MixtureSpec(BaseModel):
    """How prompts are put together, and how they start."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    combine: Literal["mixture", "product"] = "mixture"
    """Sum the prompts' probabilities, or multiply them (a product of experts over hard prompts)."""
    deep: bool = False
    """Perturb the prompt tokens at all layers, not at layer 0 alone."""
    data_dependent: bool = False
    """Weight each prompt by how probable it finds x, too."""
    initial: Initial = "words"
    """Start from the prompts' words, or from random vectors at their places."""
    copies: int = Field(default=1, ge=1, le=1000)
    """How many copies of each prompt to take."""
    noise: float = Field(default=0.0, ge=0.0)
    """Move each prompt vector at the start by so many standard deviations of the LM's word vectors."""
    weights: Literal["uniform", "file"] = "uniform"
    """Start from equal prompt weights, or from those that stand in the prompt file."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of everything that is drawn at random."""

    @model_validator(mode="after")
    def _fits_together(self) -> "MixtureSpec":
        if self.copies > 1 and self.noise == 0 and self.initial == "words":
            raise ValueError(f"copies is {self.copies} with no noise: equal copies would never part; set noise above 0")
        if self.combine == "product" and (self.deep or self.data_dependent):
            raise ValueError(
                "a product of experts keeps its prompts hard: it goes with neither deep nor data_dependent"
            )
        return self
