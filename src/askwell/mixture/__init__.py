"""Mixtures of prompts over a frozen LM."""

from askwell.mixture.mixture import Mixture
from askwell.specs import MixtureSpec

__all__ = ["Mixture", "MixtureSpec"]
