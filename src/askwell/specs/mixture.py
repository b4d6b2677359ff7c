"""The choices that make a mixture, before any of it is tuned."""

from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator

Initial = Literal["words", "random", "random-full"]
WeightingName = Literal["static", "data-dependent"]
# In version 0.1.0 the weighting was a boolean. Writing it that way keeps files and the ids of runs the same as before.
_BY_DATA_DEPENDENT: dict[bool, WeightingName] = {False: "static", True: "data-dependent"}


class MixtureSpec(BaseModel):
    """How prompts are combined, and how they start."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    combine: Literal["mixture", "product"] = "mixture"
    """Sum the prompts' probabilities, or multiply them (a product of experts over hard prompts)."""
    deep: bool = False
    """Perturb the prompt tokens at all layers, not just at layer 0."""
    weighting: WeightingName = "static"
    """Weight the prompts alike for every x, or also by how probable each finds x (--data-dependent for short)."""
    initial: Initial = "words"
    """Start from the prompts' words, or from random vectors in their places."""
    copies: int = Field(default=1, ge=1, le=1000)
    """How many copies of each prompt to use."""
    noise: float = Field(default=0.0, ge=0.0)
    """Perturb each prompt vector at the start by this many standard deviations of the LM's word vectors."""
    weights: Literal["uniform", "file"] = "uniform"
    """Start from equal prompt weights, or from those in the prompt file."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of everything drawn at random."""

    @property
    def data_dependent(self) -> bool:
        """Whether the weights depend on x."""
        return self.weighting == "data-dependent"

    @model_validator(mode="before")
    @classmethod
    def _read_data_dependent(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "data_dependent" not in given:
            return given
        rest = {key: value for key, value in given.items() if key != "data_dependent"}
        if not isinstance(given["data_dependent"], bool):
            raise ValueError(f"data_dependent must be true or false, not {given['data_dependent']!r}")
        weighting = _BY_DATA_DEPENDENT[given["data_dependent"]]
        if rest.setdefault("weighting", weighting) != weighting:
            raise ValueError("data_dependent and weighting contradict each other: give only one of them")
        return rest

    @model_serializer(mode="wrap")
    def _write_data_dependent(self, write: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        written = write(self)
        if written.get("weighting") not in _BY_DATA_DEPENDENT.values():
            return written
        return {
            "data_dependent" if name == "weighting" else name: self.data_dependent if name == "weighting" else value
            for name, value in written.items()
        }

    @model_validator(mode="after")
    def _fits_together(self) -> "MixtureSpec":
        if self.copies > 1 and self.noise == 0 and self.initial == "words":
            raise ValueError(f"copies is {self.copies} with no noise: equal copies would stay equal; set noise above 0")
        if self.combine == "product" and (self.deep or self.weighting != "static"):
            raise ValueError("a product of experts has hard prompts and static weights: leave out deep and weighting")
        return self
