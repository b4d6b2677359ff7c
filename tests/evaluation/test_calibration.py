"""Reliability and ECE by hand, and against a slow loop."""

import numpy as np
import pytest

from askwell.errors import BadOption
from askwell.evaluation.calibration import calibration


def test_bins_and_their_error_match_those_computed_by_hand():
    # Two bins of equal width: {0.2, 0.4} with one right, {0.6, 0.8, 1.0} with all right.
    found = calibration(np.array([0.2, 0.6, 0.4, 0.8, 1.0]), np.array([True, True, False, True, True]), bins=2)
    low, high = found.bins
    assert (low.low, low.high, low.count, low.accuracy) == (0, 0.5, 2, 0.5)
    assert (high.low, high.high, high.count, high.accuracy) == (0.5, 1, 3, 1)
    assert (low.confidence, high.confidence) == pytest.approx((0.3, 0.8))
    assert found.ece == pytest.approx(2 / 5 * 0.2 + 3 / 5 * 0.2)
    assert (found.accuracy, found.confidence, found.questions) == (pytest.approx(0.8), pytest.approx(0.6), 5)


def test_edges_belong_to_the_bin_below():
    confidences = np.array([0.0, 0.1, 0.3, 0.6, 0.7, 0.9, 1.0])
    found = calibration(confidences, np.ones(7, dtype=bool))
    assert [(one.high, one.count) for one in found.bins] == [(0.1, 2), (0.3, 1), (0.6, 1), (0.7, 1), (0.9, 1), (1.0, 1)]


def slow_ece(confidences, right, bins):
    total = 0.0
    for k in range(1, bins + 1):
        inside = [
            (p, r)
            for p, r in zip(confidences, right, strict=True)
            if (k - 1) / bins < p <= k / bins or (k == 1 and p == 0)
        ]
        if inside:
            mean = sum(p for p, _ in inside) / len(inside)
            share = sum(r for _, r in inside) / len(inside)
            total += len(inside) / len(confidences) * abs(share - mean)
    return total


@pytest.mark.parametrize("bins", [1, 7, 10, 15])
def test_against_a_slow_loop(bins):
    random = np.random.default_rng(bins)
    confidences = np.round(random.beta(0.5, 0.7, 500), 2)  # many on edges
    right = random.random(500) < confidences**2
    assert calibration(confidences, right, bins=bins).ece == pytest.approx(slow_ece(confidences, right, bins))


def test_perfect_and_worst():
    assert calibration(np.ones(4), np.ones(4, dtype=bool)).ece == 0
    assert calibration(np.ones(4), np.zeros(4, dtype=bool)).ece == 1


def test_what_is_no_probability():
    for numbers in ([-0.1], [1.1], []):
        with pytest.raises(BadOption):
            calibration(np.array(numbers), np.ones(len(numbers), dtype=bool))
    with pytest.raises(BadOption):
        calibration(np.array([0.5]), np.array([True]), bins=0)
    assert calibration(np.array([1 + 1e-7]), np.array([True])).bins[0].high == 1  # float32 sums do that
