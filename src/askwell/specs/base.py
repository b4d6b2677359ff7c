"""What all specs have in common."""

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    """Frozen, and refuses keys that it does not know and numbers that are not finite; the text under a field is its
    description."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
