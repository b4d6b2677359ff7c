"""Specs: the frozen, validated choices of a run. They hold no behaviour and import nothing heavy."""

from askwell.specs.baselines import AutoPromptSpec, FineTuningSpec
from askwell.specs.mixture import Initial, MixtureSpec, WeightingName
from askwell.specs.run import ControlKind, PromptText, RunSpec
from askwell.specs.sweep import EngineName, LMChoice, Setting, SweepSpec
from askwell.specs.training import TrainingSpec

__all__ = [
    "AutoPromptSpec",
    "ControlKind",
    "EngineName",
    "FineTuningSpec",
    "Initial",
    "LMChoice",
    "MixtureSpec",
    "PromptText",
    "RunSpec",
    "Setting",
    "SweepSpec",
    "TrainingSpec",
    "WeightingName",
]
