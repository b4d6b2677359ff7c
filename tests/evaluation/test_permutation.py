"""The paired tests against scipy's, against all sign flips one by one, and against the binomial."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from askwell.evaluation.significance import permutation_test, sign_test


def by_enumeration(differences: list[float]) -> float:
    observed = abs(math.fsum(differences))
    sums = [
        abs(math.fsum(sign * d for sign, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    return sum(s >= observed - 1e-9 for s in sums) / len(sums)


@pytest.mark.parametrize(
    "differences",
    [
        [1.0],
        [1.0, 1.0, 1.0, -1.0, 0.0, 0.0],
        [0.5, -0.25, 0.1, 0.1, 0.1, -0.9, 0.33],
        [1.0, 2.0, 3.0, 4.0, -1.0, -1.0, 0.0, 2.0],
        [0.1, 0.2, -0.3],  # a sum of 0 but for the last bits: every flip is as far
        [0.6, 0.1, 0.4, 0.7, -0.5, 0.1],  # sums that are equal but for the last bits
    ],
)
def test_small_cases_against_all_flips(differences):
    test = permutation_test(np.array(differences))
    assert test.exact
    assert test.p == pytest.approx(by_enumeration(differences), abs=1e-12)


def test_the_p_value_counts_sign_flips_as_by_hand():
    # Signs of three ones sum to 3 or -3 in 2 of 8 ways.
    assert permutation_test(np.array([1.0, 1.0, 1.0])).p == 0.25


def test_many_whole_numbers_against_all_flips():
    random = np.random.default_rng(1)
    differences = random.integers(-3, 4, 25).astype(float)
    differences = differences[differences != 0][:17]
    assert len(differences) == 17  # beyond what is enumerated
    test = permutation_test(differences)
    assert test.exact
    assert test.p == pytest.approx(by_enumeration(list(differences)), rel=1e-9)


@pytest.mark.parametrize("whole", [True, False])
def test_the_permutation_test_matches_scipys(whole):
    random = np.random.default_rng(2)
    a = random.integers(0, 2, 80).astype(float) if whole else random.normal(0.35, 1, 80)
    b = random.integers(0, 2, 80) * random.integers(0, 2, 80).astype(float) if whole else random.normal(0, 1, 80)
    theirs = stats.permutation_test(
        (a, b),
        lambda a, b, axis: (a - b).sum(axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=50_000,
        rng=np.random.default_rng(3),
    ).pvalue
    ours = permutation_test(a - b, resamples=50_000)
    assert ours.exact == whole
    assert 0.001 < theirs < 0.5
    # Two samples of 50,000: four standard errors.
    assert ours.p == pytest.approx(theirs, abs=4 * math.sqrt(2 * theirs * (1 - theirs) / 50_000))


def test_right_and_wrong_answers_are_a_binomial():
    # With differences of 1 alone the test is the exact sign test, at any size.
    for wins, losses in [(30, 12), (2_000, 1_900), (9_000, 9_000)]:
        differences = np.repeat([1.0, -1.0, 0.0], [wins, losses, 500])
        expected = stats.binomtest(wins, wins + losses).pvalue
        assert permutation_test(differences).p == pytest.approx(expected, rel=1e-9)
        assert sign_test(wins, losses) == pytest.approx(expected, rel=1e-12)


def test_the_observed_signs_count_among_the_sampled():
    differences = np.linspace(1, 2, 40) + 0.001234
    assert permutation_test(differences, resamples=99).p == 1 / 100
    assert permutation_test(differences, resamples=999).p == 1 / 1000


def test_a_true_null_gives_uniform_p_values():
    random = np.random.default_rng(5)
    ps = [permutation_test(random.normal(size=30), resamples=199, seed=trial).p for trial in range(300)]
    assert stats.kstest(ps, "uniform").pvalue > 0.001


def test_the_seed_decides():
    differences = np.random.default_rng(0).normal(0.2, 1, 50)
    first, again = (permutation_test(differences, resamples=500, seed=7) for _ in range(2))
    assert first == again
    assert len({permutation_test(differences, resamples=500, seed=seed).p for seed in range(9)}) > 1


def test_where_nothing_differs_p_is_one():
    assert permutation_test(np.zeros(10)).p == 1
    assert permutation_test(np.zeros(0)).p == 1
    assert sign_test(0, 0) == 1


def test_sign_test_by_hand():
    # 5 of 5 heads or tails: 2 / 32.
    assert sign_test(5, 0) == sign_test(0, 5) == pytest.approx(2 / 32)
    # 3 of 4: (4 + 1) · 2 / 16.
    assert sign_test(3, 1) == pytest.approx(10 / 16)
