"""Step sizes: the paper's constant, or such as follow the LM's own scale."""

from dataclasses import dataclass
from typing import Any

from askwell.lms.scales import hidden_scales, word_scale
from askwell.mixture import Mixture
from askwell.mixture.encode import EncodedFacts
from askwell.specs import TrainingSpec

OF_WORDS = 0.2
"""A step on the vectors at layer 0, in standard deviations of the word vectors."""
OF_HIDDEN = 0.02
"""A step on a deeper layer's perturbation, in standard deviations of what leaves that layer."""
OF_WEIGHTS = 0.1
"""A step on the weights' logits and log T, which have no scale of their own."""
_PAPER = 1e-3
_SAMPLED_PAIRS = 64


@dataclass(frozen=True)
class Rates:
    """Adam's step size for each part of a mixture."""

    vectors: float
    layers: dict[str, list[float]]
    """For each stack, layer by layer."""
    weights: float

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"vectors": self.vectors, "layers": self.layers, "weights": self.weights}


def rates_of(mixture: Mixture, facts: EncodedFacts, spec: TrainingSpec) -> Rates:
    """The step sizes of a run: those that the spec gives, and for the rest the recipe's."""
    everything = spec.learning_rate or (_PAPER if spec.recipe == "paper" else None)
    vectors, layers = spec.vectors_rate or everything, spec.layers_rate or everything
    weights = spec.weights_rate or everything or OF_WEIGHTS
    if vectors is None:
        vectors = OF_WORDS * word_scale(mixture.lm)
    if layers is None and mixture.deltas:
        scales = hidden_scales(mixture.lm, mixture.sample(facts.xs, _SAMPLED_PAIRS), mixture.vectors.detach())
        by_layer = {stack: [OF_HIDDEN * scale for scale in of_stack] for stack, of_stack in scales.items()}
    else:
        by_layer = {stack: [layers or 0.0] * len(delta) for stack, delta in mixture.deltas.items()}
    return Rates(vectors, by_layer, weights)
