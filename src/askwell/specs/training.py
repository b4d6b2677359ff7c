"""The choices of a training run."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class TrainingSpec(BaseModel):
    """How a mixture is tuned. The defaults are the paper's procedure: Adam as it comes."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    method: Literal["gradient", "em"] = "gradient"
    """Follow the gradient of everything at once, or alternate posteriors over prompts with steps on the prompts."""
    tune_vectors: bool = True
    """Tune the prompt vectors at layer 0."""
    tune_layers: bool = True
    """Tune the perturbations of all layers, where the mixture is deep."""
    tune_weights: bool = True
    """Tune the prompts' weights."""
    tune_temperature: bool = True
    """Tune the temperature T, where the weights depend on x."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Adam's step size."""
    vectors_rate: float | None = Field(default=None, gt=0)
    """Step size for the vectors at layer 0, if it is to be another one."""
    layers_rate: float | None = Field(default=None, gt=0)
    """Step size for the perturbations of deeper layers, if it is to be another one."""
    weights_rate: float | None = Field(default=None, gt=0)
    """Step size for the weights' logits and log T, if it is to be another one."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Adam's decay of the mean gradient."""
    beta2: float = Field(default=0.999, ge=0, lt=1)
    """Adam's decay of the mean squared gradient."""
    epsilon: float = Field(default=1e-8, gt=0)
    """Adam's guard against division by zero."""
    l2: float = Field(default=0.0, ge=0)
    """Penalty on the squared length of what was added to the prompts, beside the mean loss of a fact."""
    batch_facts: int = Field(default=64, ge=1)
    """Facts in a step; each is asked with every prompt."""
    epochs: int = Field(default=16, ge=0)
    """Passes over the training facts, at most."""
    patience: int = Field(default=4, ge=1)
    """Stop after so many epochs without a better dev score."""
    threads: int | None = Field(default=None, ge=1)
    """CPU threads; all that there are, if not given. Other numbers of threads can give other last digits."""
