"""What counts as a question, and reliability and ECE by hand and against a slow loop."""

import numpy as np
import pytest
from builders.outcomes import outcome

from askwell.errors import UsageError
from askwell.evaluation.confidence import calibration, questions_of


def test_bins_and_their_error_match_those_computed_by_hand():
    found = calibration(np.array([0.32, 0.96, 0.38, 0.92, 0.94]), np.array([True, True, False, True, True]))
    low, high = found.bins
    assert (low.low, low.high, low.count, low.accuracy) == (0.3, 0.4, 2, 0.5)
    assert (high.low, high.high, high.count, high.accuracy) == (0.9, 1, 3, 1)
    assert (low.confidence, high.confidence) == pytest.approx((0.35, 0.94))
    assert found.ece == pytest.approx(2 / 5 * 0.15 + 3 / 5 * 0.06)
    assert (found.accuracy, found.confidence, found.questions) == (pytest.approx(0.8), pytest.approx(0.704), 5)


def test_edges_belong_to_the_bin_below():
    confidences = np.array([0.0, 0.1, 0.3, 0.6, 0.7, 0.9, 1.0])
    found = calibration(confidences, np.ones(7, dtype=bool))
    assert [(one.high, one.count) for one in found.bins] == [(0.1, 2), (0.3, 1), (0.6, 1), (0.7, 1), (0.9, 1), (1.0, 1)]


def slow_ece(confidences, right, bins=10):
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


@pytest.mark.parametrize("seed", range(4))
def test_against_a_slow_loop(seed):
    random = np.random.default_rng(seed)
    confidences = np.round(random.beta(0.5, 0.7, 500), 2)  # many on edges
    right = random.random(500) < confidences**2
    assert calibration(confidences, right).ece == pytest.approx(slow_ece(confidences, right))


def test_perfect_and_worst():
    assert calibration(np.ones(4), np.ones(4, dtype=bool)).ece == 0
    assert calibration(np.ones(4), np.zeros(4, dtype=bool)).ece == 1


def test_a_sum_of_float32_probabilities_may_be_above_one():
    assert calibration(np.array([1 + 1e-7]), np.array([True])).bins[0].high == 1


def test_an_x_is_asked_once():
    answers = {"A": 0.6, "B": 0.3}
    asked = questions_of(
        [
            outcome("x", "B", 1, golds=("A", "B"), raw_rank=2, answers=answers),
            outcome("x", "A", 1, golds=("A", "B"), answers=answers),
            outcome("x", "A", 2, relation="s", answers={"C": 0.9}),
        ]
    )
    assert asked.confidences.tolist() == [0.6, 0.9]
    assert asked.right.tolist() == [True, False]


def test_what_is_right():
    asked = questions_of(
        [
            outcome("gold of another split", "B", 1, golds=("A", "B"), raw_rank=2, answers={"A": 0.5}),
            outcome("written otherwise", "Paris", 1, raw_rank=1, answers={"paris": 0.5}),
            outcome("only the filtered rank", "B", 1, golds=("B", "C"), raw_rank=2, answers={"c": 0.5}),
            outcome("a tie at the top", "B", 1.5, answers={"D": 0.5, "B": 0.5}),
        ]
    )
    assert asked.right.tolist() == [True, True, False, False]


def test_no_outcomes_are_refused():
    with pytest.raises(UsageError):
        questions_of([])
