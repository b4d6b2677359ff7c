"""The paired permutation test: could the sign of each difference have been the other?"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

# 2^14 sign vectors are enumerated in no time; beyond, whole numbers are still exact, others are sampled.
_ENUMERATED = 14
_BYTES_AT_ONCE = 2**22


@dataclass(frozen=True)
class PermutationTest:
    """A two-sided p-value, and whether it counts all sign flips or a sample of them."""

    p: float
    exact: bool


def permutation_test(
    differences: Float[np.ndarray, " units"], *, resamples: int = 9_999, seed: int = 0
) -> PermutationTest:
    """The probability that random signs give a sum at least as far from 0 as the differences have.

    Exact for up to 14 differences that are not 0, and for whole numbers (counts of right answers) however many.
    Otherwise from `resamples` random flips, with the observed signs counted as one more: (1 + k) / (1 + resamples).
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
    """The sum of the sizes under random signs, for each resample."""
    # A random byte is eight signs, and the sums of eight sizes under all 256 bytes are looked up, not added again.
    padded = np.pad(sizes, (0, -len(sizes) % 8)).reshape(-1, 8)
    signs = 1 - 2.0 * (np.arange(256)[:, None] >> np.arange(8) & 1)
    table = padded @ signs.T  # blocks × bytes
    blocks = np.arange(len(table))
    parts = []
    for begin in range(0, resamples, at_once := max(1, _BYTES_AT_ONCE // len(table))):
        rows = min(at_once, resamples - begin)
        drawn = np.frombuffer(random.bytes(rows * len(table)), dtype=np.uint8).reshape(rows, -1)
        parts.append(table[blocks, drawn].sum(1))
    return np.concatenate(parts)


def _whole_numbers(sizes: np.ndarray, observed: int) -> float:
    """The exact p-value: the signs of n equal sizes sum to a stretched binomial, and sums of those are convolved."""
    distribution = np.ones(1)  # of the sum of flipped sizes, from 0 to the sum of all
    for size, count in zip(*np.unique(sizes, return_counts=True), strict=True):
        stretched = np.zeros(size * count + 1)
        stretched[::size] = stats.binom.pmf(np.arange(count + 1), count, 0.5)
        distribution = np.convolve(distribution, stretched)
    sums = sizes.sum() - 2 * np.arange(len(distribution))
    return float(min(1.0, distribution[np.abs(sums) >= observed].sum()))
