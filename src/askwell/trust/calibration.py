"""Calibration: of the answers that are given with probability p, is a share p right?"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from askwell.errors import BadOption


@dataclass(frozen=True)
class Bin:
    """The answers whose probability is above `low` and at most `high`; shares and probabilities are from 0 to 1."""

    low: float
    high: float
    count: int
    confidence: float
    """Their mean probability."""
    accuracy: float
    """The share of them that is right."""


@dataclass(frozen=True)
class Calibration:
    """A reliability diagram, and its one figure."""

    questions: int
    confidence: float
    """The mean probability of all answers; above the accuracy, the LM is too sure of itself."""
    accuracy: float
    ece: float
    """The expected calibration error, from 0 (best) to 1."""
    bins: tuple[Bin, ...]
    """Bins without an answer are left out."""

    def as_json(self) -> dict[str, Any]:
        """All figures by name."""
        return asdict(self) | {"bins": [asdict(one) for one in self.bins]}


def calibration(
    confidences: Float[np.ndarray, " questions"], right: Bool[np.ndarray, " questions"], *, bins: int = 10
) -> Calibration:
    """The reliability of answers in `bins` bins of equal width, and the expected calibration error.

    Bin k of n holds the probabilities p with (k - 1) / n < p <= k / n; a p of 0 is in the first. The error is the mean
    over all answers of |accuracy - mean probability| of the bin that the answer is in.
    """
    if bins < 1:
        raise BadOption(f"{bins} bins: at least one is needed")
    if not len(confidences):
        raise BadOption("there are no answers whose calibration could be told")
    if (confidences < 0).any() or (confidences > 1 + 1e-6).any():
        raise BadOption("calibration is about probabilities, and some numbers are not between 0 and 1")
    edges = np.arange(bins + 1) / bins
    # A sum of float32 probabilities can end a little above 1.
    place = np.clip(np.searchsorted(edges, confidences, side="left") - 1, 0, bins - 1)
    filled = []
    for number in np.unique(place):
        inside = place == number
        filled.append(
            Bin(
                low=float(edges[number]),
                high=float(edges[number + 1]),
                count=int(inside.sum()),
                confidence=float(confidences[inside].mean()),
                accuracy=float(right[inside].mean()),
            )
        )
    return Calibration(
        questions=len(confidences),
        confidence=float(confidences.mean()),
        accuracy=float(right.mean()),
        ece=sum(one.count * abs(one.accuracy - one.confidence) for one in filled) / len(confidences),
        bins=tuple(filled),
    )
