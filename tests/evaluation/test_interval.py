"""The bootstrap interval against scipy's, against closed forms, and by how often it covers the truth."""

import numpy as np
import pytest
from scipy import stats

from askwell.evaluation.significance import bootstrap_interval


def units(values, counts=1):
    values = np.asarray(values, dtype=float)
    return np.stack([values, np.broadcast_to(np.asarray(counts, dtype=float), values.shape)], axis=1)


def drawn(*arguments, **options):
    """The interval, where there is one."""
    interval = bootstrap_interval(*arguments, **options)
    assert interval is not None
    return interval


@pytest.mark.parametrize("kind", ["few kinds of values", "all different"])
def test_the_bootstrap_interval_matches_scipys(kind):
    random = np.random.default_rng(0)
    values = random.choice([-1.0, 0.0, 1.0], 200, p=[0.1, 0.6, 0.3]) if kind[0] == "f" else random.normal(1, 2, 200)
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    ours = bootstrap_interval([units(values)], resamples=20_000)
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.06 * (theirs.high - theirs.low))


def test_against_the_binomial():
    # The mean of 0 and 1 drawn again is a binomial: its quantiles are known.
    values = np.repeat([1.0, 0.0], [30, 70])
    expected = stats.binom.ppf([0.05, 0.95], 100, 0.3) / 100
    assert bootstrap_interval([units(values)], confidence=0.9, resamples=50_000) == pytest.approx(expected, abs=0.0051)


def test_relations_are_drawn_from_on_their_own():
    # No spread inside of either relation, so none in the mean of their means; drawn together there would be some.
    strata = [units(np.ones(50)), units(np.zeros(10))]
    assert bootstrap_interval(strata) is None
    low, high = drawn([np.concatenate(strata)])
    assert low < 50 / 60 < high


def test_one_unit_has_no_interval():
    assert bootstrap_interval([units([1.0])], largest=1.0) is None
    assert bootstrap_interval([units([0.0, 1.0, 0.0]), units([1.0])], largest=1.0) is None
    assert bootstrap_interval([units([0.0, 1.0])], largest=1.0) == (0, 1)


@pytest.mark.parametrize("count", [2, 3, 40])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_units_that_are_all_alike_claim_no_certainty(count, confidence):
    others = stats.binomtest(0, count).proportion_ci(confidence, method="wilson").high
    for value in (-1.0, 0.0, 0.25, 1.0):
        # The others, all of them at one end of the scale.
        expected = [(1 - others) * value + others * end for end in (-1, 1)]
        found = bootstrap_interval([units(np.full(count, value))], confidence=confidence, largest=1.0)
        assert found == pytest.approx(expected)
        whole = bootstrap_interval([units(np.full(count, 3 * value), 3)], confidence=confidence, largest=1.0)
        assert whole == pytest.approx(expected)  # three facts in each unit are no more units
    assert bootstrap_interval([units(np.full(count, 0.1))]) is None  # a log-loss has no largest value


def test_the_spread_of_a_mean_of_means():
    random = np.random.default_rng(3)
    parts = [random.normal(size=400), random.normal(size=100)]
    error = np.sqrt(sum(part.var() / len(part) for part in parts)) / 2
    low, high = drawn([units(part) for part in parts], resamples=20_000)
    assert high - low == pytest.approx(2 * 1.95996 * error, rel=0.03)
    assert (high + low) / 2 == pytest.approx(np.mean([part.mean() for part in parts]), abs=0.1 * error)


def test_units_of_several_facts_are_drawn_whole():
    # Each unit holds 10 equal facts: the spread is that of 40 units, not of 400 facts.
    random = np.random.default_rng(4)
    values = random.normal(size=40)
    low, high = drawn([units(10 * values, 10)], resamples=20_000)
    assert high - low == pytest.approx(2 * 1.95996 * values.std() / np.sqrt(40), rel=0.05)


def test_the_interval_covers_the_true_mean_as_often_as_it_says():
    """A 90 % interval of a mean of 0/1 differences holds the truth in about 90 % of trials."""
    random = np.random.default_rng(6)
    shares = [0.1, 0.65, 0.25]
    held = 0
    for trial in range(400):
        values = random.choice([-1.0, 0.0, 1.0], 150, p=shares)
        low, high = drawn([units(values)], confidence=0.9, resamples=500, seed=trial)
        held += low <= 0.15 <= high
    # 360 expected; five standard errors of a binomial.
    assert abs(held - 360) < 5 * np.sqrt(400 * 0.9 * 0.1)
