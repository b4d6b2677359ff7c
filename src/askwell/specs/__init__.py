"""Specs: frozen, validated choices of a run. They hold no behaviour and import nothing heavy."""

from askwell.specs.mixture import Initial, MixtureSpec
from askwell.specs.training import TrainingSpec

__all__ = ["Initial", "MixtureSpec", "TrainingSpec"]
