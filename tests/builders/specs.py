"""Specs of the paper's mixtures."""

from typing import Any

from askwell.specs.mixture_spec import MixtureSpec


def paper_spec(**options: Any) -> MixtureSpec:
    """One-token answers, whatever the facts need."""
    return MixtureSpec.model_validate({"answers": "one-token", **options})
