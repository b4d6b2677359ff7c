"""The bootstrap interval of a difference."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

_DRAWS_AT_ONCE = 2**20


def bootstrap_interval(
    strata: Sequence[Float[np.ndarray, "_ 2"]],
    *,
    confidence: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
) -> tuple[float, float]:
    """The percentile interval of a mean when units are drawn again with replacement.

    A unit is a row (sum of its differences, number of them), a stratum's mean the ratio of the two sums. With several
    strata (relations) each is drawn from on its own, and the mean of their means is taken.
    """
    random = np.random.default_rng(seed)
    means = np.zeros(resamples)
    for units in strata:
        sums = _resampled_sums(units, resamples, random)
        means += sums[:, 0] / sums[:, 1]
    low, high = np.quantile(means / len(strata), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _resampled_sums(
    units: Float[np.ndarray, "units 2"], resamples: int, random: np.random.Generator
) -> Float[np.ndarray, "resamples 2"]:
    """The sum of as many rows as there are, drawn with replacement, for each resample."""
    kinds, times = np.unique(units, axis=0, return_counts=True)
    # Equal rows can be counted instead of drawn. scipy.stats.bootstrap draws them, which takes minutes for P@1 of
    # tens of thousands of facts, where only three kinds of rows exist.
    if len(kinds) <= len(units) / 8 or len(kinds) == 1:
        return random.multinomial(len(units), times / len(units), size=resamples) @ kinds
    sums = np.ascontiguousarray(units[:, 0])
    counts = None if (units[:, 1] == units[0, 1]).all() else np.ascontiguousarray(units[:, 1])
    at_once = max(1, _DRAWS_AT_ONCE // len(units))
    parts = []
    for begin in range(0, resamples, at_once):
        drawn = random.integers(len(units), size=(min(at_once, resamples - begin), len(units)), dtype=np.int32)
        counted = counts[drawn].sum(1) if counts is not None else np.full(len(drawn), units[:, 1].sum())
        parts.append(np.stack([sums[drawn].sum(1), counted], axis=1))
    return np.concatenate(parts)
