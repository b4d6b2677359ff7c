"""Significance of paired differences: the permutation test, the sign test, and the bootstrap interval."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

SIGNIFICANT = 0.02
"""Below this p a difference counts as one, in tables and sentences, as in the paper."""
# 2^14 sign vectors are enumerated instantly; with more, the test is exact for whole numbers and sampled for others.
_ENUMERATED = 14
_NUMBERS_AT_ONCE = 2**24


@dataclass(frozen=True)
class PermutationTest:
    """A two-sided p-value, and whether it counts all sign flips or a sample of them."""

    p: float
    exact: bool


def permutation_test(
    differences: Float[np.ndarray, " units"], *, resamples: int = 9_999, seed: int = 0
) -> PermutationTest:
    """Compute the probability that random signs give a sum at least as far from 0 as that of the differences.

    It is exact for up to 14 differences that are not 0, and for any number of whole numbers (counts of right answers).
    Otherwise it is estimated from `resamples` flips, with the observed signs as one more: (1 + k) / (1 + resamples).
    """
    sizes = np.abs(differences[differences != 0])
    observed = abs(float(differences.sum()))
    if len(sizes) == 0:
        return PermutationTest(1.0, exact=True)
    # Sums of the same numbers in another order differ in their last bits; such sums are the same.
    reach = observed - 1e-12 * float(sizes.sum())
    if len(sizes) <= _ENUMERATED:
        bits = np.arange(2 ** len(sizes))[:, None] >> np.arange(len(sizes))
        return PermutationTest(float((np.abs((1 - 2 * (bits & 1)) @ sizes) >= reach).mean()), exact=True)
    if (sizes == np.round(sizes)).all():
        return PermutationTest(_whole_numbers(sizes.astype(np.int64), round(observed)), exact=True)
    sums = _flipped_sums(sizes, resamples, np.random.default_rng(seed))
    as_far = int((np.abs(sums) >= reach).sum())
    return PermutationTest((1 + as_far) / (1 + resamples), exact=False)


def _flipped_sums(
    sizes: Float[np.ndarray, " units"], resamples: int, random: np.random.Generator
) -> Float[np.ndarray, " resamples"]:
    """Sum the sizes under random signs, for each resample."""
    of_one = -(-len(sizes) // 8)  # bytes
    at_once = max(4, _NUMBERS_AT_ONCE // (8 * of_one) // 4 * 4)  # whole words of the generator
    parts = []
    for begin in range(0, resamples, at_once):
        drawn = np.frombuffer(random.bytes(min(at_once, resamples - begin) * of_one), dtype=np.uint8)
        bits = np.unpackbits(drawn.reshape(-1, of_one), axis=1, count=len(sizes), bitorder="little")
        parts.append((1 - 2.0 * bits) @ sizes)
    return np.concatenate(parts)


def _whole_numbers(sizes: np.ndarray, observed: int) -> float:
    """Compute the exact p-value: the signs of n equal sizes sum to a stretched binomial; these are convolved."""
    distribution = np.ones(1)  # of the sum of flipped sizes, from 0 to the sum of all
    for size, count in zip(*np.unique(sizes, return_counts=True), strict=True):
        stretched = np.zeros(size * count + 1)
        stretched[::size] = _fair_binomial(int(count))
        distribution = np.convolve(distribution, stretched)
    sums = sizes.sum() - 2 * np.arange(len(distribution))
    return float(min(1.0, distribution[np.abs(sums) >= observed].sum()))


def sign_test(wins: int, losses: int) -> float:
    """Compute the two-sided binomial p-value of wins against losses; ties do not count, and without either it is 1."""
    if wins + losses == 0:
        return 1.0
    fair = _fair_binomial(wins + losses)
    return float(min(1.0, 2 * fair[: min(wins, losses) + 1].sum()))


def _fair_binomial(count: int) -> Float[np.ndarray, " outcomes"]:
    """Return how probable each number of heads in so many tosses is. (To import scipy.stats takes a second.)"""
    heads = np.arange((count + 1) // 2, count)
    upper = np.cumprod(np.concatenate([np.ones(1), (count - heads) / (heads + 1)]))  # the middle is 1
    outcomes = np.concatenate([upper[: 0 if count % 2 == 0 else None : -1], upper])
    return outcomes / outcomes.sum()


def wilson_interval(right: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """Compute Wilson's interval of a fraction, of which `right` in `of` were seen."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, doubt = right / of, z * z / of
    middle = (share + doubt / 2) / (1 + doubt)
    half = z * math.sqrt(share * (1 - share) / of + doubt / (4 * of)) / (1 + doubt)
    return max(0.0, middle - half), min(1.0, middle + half)


_DRAWS_AT_ONCE = 2**20


def bootstrap_interval(
    strata: Sequence[Float[np.ndarray, "_ 2"]],
    *,
    confidence: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
    largest: float = math.inf,
) -> tuple[float, float] | None:
    """Compute the percentile interval of a mean when units are resampled with replacement; None if some stratum has
    only one unit, which says nothing about the others.

    A unit is a row (sum of its differences, number of them), a stratum's mean the ratio of the two sums. With several
    strata (relations) each is drawn from on its own, and the mean of their means is taken.

    If all units of each stratum are alike, every draw gives the same mean, however few they are. The interval is then
    what the mean can become if as many units differ as Wilson's interval for none of n allows, each by as much as a
    difference can (`largest`); None if there is no largest difference.
    """
    if min(map(len, strata)) < 2:
        return None
    random = np.random.default_rng(seed)
    means = np.zeros(resamples)
    for units in strata:
        sums = _resampled_sums(units, resamples, random)
        means += sums[:, 0] / sums[:, 1]
    low, high = np.quantile(means / len(strata), [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    if high - low > 1e-12 * abs(high):
        return low, high
    if math.isinf(largest):
        return None
    z_squared = NormalDist().inv_cdf((1 + confidence) / 2) ** 2
    others = float(np.mean([z_squared / (len(units) + z_squared) for units in strata]))
    return low - others * (largest + low), high + others * (largest - high)


def p_text(p: float) -> str:
    """Return a p-value as it is shown."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1g}"


def interval_text(low: float | None, high: float | None, write: Callable[[float], str]) -> str:
    """Return an interval as it is shown; a dash for none."""
    return "–" if low is None or high is None else f"{write(low)} to {write(high)}"


def _resampled_sums(
    units: Float[np.ndarray, "units 2"], resamples: int, random: np.random.Generator
) -> Float[np.ndarray, "resamples 2"]:
    """Sum as many rows as there are, drawn with replacement, for each resample."""
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
