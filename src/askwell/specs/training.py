"""The choices of a training run."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class TrainingSpec(BaseModel):
    """How a mixture is tuned. What is None is chosen by the recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    recipe: Literal["cycle", "paper"] = "cycle"
    """One cycle over a budget, with step sizes that follow the LM's own scale; or the paper's: Adam at 1e-3, 64 facts
    a step, 16 epochs at most, until dev has not got better for 4."""
    method: Literal["gradient", "em"] = "gradient"
    """Follow the gradient of everything at once, or alternate posteriors over prompts with steps on the prompts."""
    pairs: int | None = Field(default=None, ge=1)
    """Budget of the cycle: (fact, prompt) pairs to train on. Without a budget 4000 for one prompt, down to 2000 for
    many."""
    minutes: float | None = Field(default=None, gt=0)
    """Budget of the cycle in minutes, from which the number of pairs is measured at the start."""
    epochs: int | None = Field(default=None, ge=0)
    """Passes over the training facts: the cycle's budget, or the most that the paper's recipe takes."""
    patience: int | None = Field(default=None, ge=1)
    """With the paper's recipe: stop after so many epochs without a better dev score."""
    batch_facts: int | None = Field(default=None, ge=1)
    """Facts in a step, each asked with every prompt; about 32 pairs, or the paper's 64 facts, if not given."""
    drop_below: float = Field(default=0.0, ge=0, lt=1)
    """Drop prompts that weigh less than this after a third of the cycle, which saves their cost; 0 drops none."""
    tune_vectors: bool = True
    """Tune the prompt vectors at layer 0."""
    tune_layers: bool = True
    """Tune the perturbations of all layers, where the mixture is deep."""
    tune_weights: bool = True
    """Tune the prompts' weights."""
    tune_temperature: bool = True
    """Tune the temperature T, where the weights depend on x."""
    learning_rate: float | None = Field(default=None, gt=0)
    """Adam's step size for everything (at the peak of the cycle), instead of the recipe's."""
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
    threads: int | None = Field(default=None, ge=1)
    """CPU threads; all that there are, if not given. Other numbers of threads can give other last digits."""

    @model_validator(mode="after")
    def _fits_together(self) -> "TrainingSpec":
        budgets = [name for name in ("pairs", "minutes", "epochs") if getattr(self, name) is not None]
        if len(budgets) > 1:
            raise ValueError(f"{' and '.join(budgets)} are each a budget of the run: give one of them")
        if self.recipe == "paper" and (self.pairs is not None or self.minutes is not None):
            raise ValueError(f"{budgets[0]} is a budget of the cycle; the paper's recipe takes epochs and patience")
        if self.recipe == "paper" and self.drop_below:
            raise ValueError("drop_below goes with the cycle; the paper's recipe keeps all prompts")
        if self.recipe == "cycle" and self.patience is not None:
            raise ValueError("patience goes with the paper's recipe; the cycle runs to the end of its budget")
        return self
