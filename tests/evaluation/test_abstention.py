"""Risk and coverage by hand, by all orders of ties, and by thresholds tried one by one."""

import itertools

import numpy as np
import pytest
from builders.outcomes import outcome
from scipy import stats

from askwell.errors import BadOption
from askwell.evaluation.confidence import learn_threshold, risk_coverage
from askwell.evaluation.trust import at_risk


def test_the_risk_coverage_curve_matches_one_computed_by_hand():
    curve = risk_coverage(np.array([0.9, 0.5, 0.7, 0.5]), np.array([True, False, False, True]))
    assert curve.thresholds == (0.9, 0.7, 0.5)
    assert curve.coverages == (0.25, 0.5, 1.0)
    assert curve.risks == (0, 0.5, 0.5)
    # Risks at 1, 2, 3, 4 answers: 0, 1/2, (1 + 1/2)/3, 2/4.
    assert curve.area == pytest.approx((0 + 0.5 + 0.5 + 0.5) / 4)


def slow_area(signals, right):
    """The mean area over all orders of questions in which signals do not rise."""
    areas = []
    for order in itertools.permutations(range(len(signals))):
        if any(signals[a] < signals[b] for a, b in itertools.pairwise(order)):
            continue
        wrong, risks = 0, []
        for count, number in enumerate(order, start=1):
            wrong += not right[number]
            risks.append(wrong / count)
        areas.append(sum(risks) / len(risks))
    return sum(areas) / len(areas)


@pytest.mark.parametrize("seed", range(6))
def test_the_area_is_the_mean_over_all_orders_of_ties(seed):
    random = np.random.default_rng(seed)
    signals, right = random.integers(0, 3, 7).astype(float), random.random(7) < 0.5
    assert risk_coverage(signals, right).area == pytest.approx(slow_area(signals, right))


def test_the_best_and_the_worst_order():
    right = np.array([True, True, False])
    assert risk_coverage(np.array([3.0, 2.0, 1.0]), right).area == pytest.approx((0 + 0 + 1 / 3) / 3)
    assert risk_coverage(np.array([1.0, 2.0, 3.0]), right).area == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    # A signal that tells nothing has the overall risk everywhere.
    assert risk_coverage(np.zeros(3), right).area == pytest.approx(1 / 3)


@pytest.mark.parametrize("risk", [0.0, 0.1, 0.3, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_a_threshold_against_all_tried(seed, risk):
    random = np.random.default_rng(seed)
    signals = np.round(random.random(60), 1)
    right = random.random(60) < signals
    learned = learn_threshold(signals, right, risk=risk)
    best = (0.0, None)
    for threshold in sorted(set(signals)):
        answered = right[signals >= threshold]
        if 1 - answered.mean() <= risk + 1e-12:
            best = max(best, (len(answered) / 60, threshold), key=lambda found: found[0])
    assert (learned.coverage, learned.value) == pytest.approx(best)
    assert learned.risk <= risk + 1e-12


def test_a_curve_that_comes_back():
    # The surest is wrong, the next nine are right: at a risk of 0.1 all ten are answered.
    learned = learn_threshold(np.arange(10, 0, -1.0), np.array([False] + [True] * 9), risk=0.1)
    assert (learned.value, learned.coverage, learned.risk) == (1, 1, pytest.approx(0.1))


def test_no_threshold_keeps_the_risk():
    learned = learn_threshold(np.array([0.5, 0.6]), np.array([False, False]), risk=0.2)
    assert (learned.value, learned.coverage, learned.risk) == (None, 0, 0)
    dev, test = [outcome("x", "A", 2)], [outcome("z", "A", answers={"A": 0.9})]
    found = at_risk(dev, test, 0.2)
    assert (found.answered, found.coverage, found.found_risk) == (0, 0, None)


def test_confidence_asks_for_more_dev_questions():
    # With no wrong answer among n the bound is 1 - 0.05^(1/n): at most 0.1 from n = 29 on.
    for count, enough in ((28, False), (29, True)):
        learned = learn_threshold(np.full(count, 0.5), np.ones(count, dtype=bool), risk=0.1, confidence=0.95)
        assert (learned.value is not None) == enough
        assert (1 - 0.05 ** (1 / count) <= 0.1) == enough
    # 3 wrong of 100: the bound solves P(at most 3 wrong) = 0.05.
    signals, right = np.full(100, 0.5), np.arange(100) >= 3
    bound = next(risk for risk in np.arange(0.03, 0.2, 0.0001) if stats.binom.cdf(3, 100, risk) <= 0.05)
    assert learn_threshold(signals, right, risk=float(bound) - 0.001, confidence=0.95).value is None
    assert learn_threshold(signals, right, risk=float(bound) + 0.001, confidence=0.95).value == 0.5
    assert learn_threshold(signals, ~np.ones(100, dtype=bool), risk=0.9, confidence=0.95).value is None


def test_the_threshold_of_dev_on_test_by_hand():
    dev = [outcome("d", "A", answers={"A": 0.5})]
    given = [("B", 0.5), ("A", 0.9), ("B", 0.4), ("A", 0.6)]
    test = [outcome(f"x{n}", "A", raw_rank=1 + (y == "B"), answers={y: p}) for n, (y, p) in enumerate(given)]
    found = at_risk(dev, test, 0.1)
    assert (found.threshold, found.dev_coverage, found.dev_questions, found.questions) == (0.5, 1, 1, 4)
    assert (found.answered, found.wrong, found.coverage, found.found_risk) == (3, 1, 0.75, pytest.approx(1 / 3))


def test_risks_and_confidences_that_cannot_be_kept_are_refused():
    for options in ({"risk": 1.5}, {"risk": -0.1}, {"risk": 0.1, "confidence": 1.0}):
        with pytest.raises(BadOption):
            learn_threshold(np.array([0.5]), np.array([True]), **options)
