"""The choices of fine-tuning a whole LM."""

from pydantic import BaseModel, ConfigDict, Field


class FineTuningSpec(BaseModel):
    """How all weights of an LM are tuned: AdamW with a warm-up, then steps that shrink to nothing."""

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
    """The share of the steps in which they grow."""
    dropout: bool = True
    """Train with the dropout of the LM's own config."""
