"""Training: tunes a mixture on the facts of a relation."""

from askwell.specs import TrainingSpec
from askwell.training.loop import Progress, TrainingResult, train

__all__ = ["Progress", "TrainingResult", "TrainingSpec", "train"]
