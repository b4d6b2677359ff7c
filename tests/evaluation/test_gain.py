"""Gains over controls by hand, and how often a gain is claimed where there is none."""

import numpy as np
import pytest
from builders.outcomes import interval, knowledge_over, outcome
from scipy import stats

from askwell.errors import UsageError
from askwell.evaluation.knowledge import best_control
from askwell.views.trust_section import control_sentences


def run(ranks):
    return [outcome(f"x{number}", "y", rank) for number, rank in enumerate(ranks)]


def gain_over(outcomes, control, *, unit="fact", **options):
    """The gain over a single control."""
    return knowledge_over(outcomes, {"control": {"dev": control, "test": control}}, unit=unit, **options)


def test_the_gain_matches_one_computed_by_hand():
    gain = gain_over(run([1] * 30 + [2] * 10), run([2] * 20 + [1] * 10 + [2] * 10 + [1]))
    assert (gain.facts, gain.only_run, gain.only_control) == (40, 0, 1)
    assert (gain.score, gain.control_score, gain.gain) == (75, 25, 50)
    # 20 wins, no loss: p = 2 / 2^20, and the interval is about 50 ± 1.96 · 50 / √40.
    assert gain.p == pytest.approx(2 / 2**20)
    assert (gain.low, gain.high) == pytest.approx((50 - 15.5, 50 + 15.5), abs=2.6)


def test_few_changes_claim_nothing():
    # 5 wins, no loss: the bootstrap leaves 0 out, but heads or tails five times is 1 in 16.
    gain = gain_over(run([1] * 5 + [2] * 95), run([2] * 100))
    assert gain.p == pytest.approx(1 / 16)
    assert gain.low == 0
    assert interval(gain)[1] > 5
    assert interval(gain_over(run([1] * 6 + [2] * 94), run([2] * 100)))[0] > 0  # 1 in 32
    assert gain_over(run([2] * 100), run([1] * 5 + [2] * 95)).high == 0


def test_a_single_fact_shows_nothing():
    gain = gain_over(run([1]), run([2]))
    assert (gain.gain, gain.p, gain.low, gain.high) == (100, 1, None, None)
    assert not gain.is_there
    assert "100.0 (95 % interval –), which may be chance." in control_sentences(gain, None)[1]
    everything = gain_over(run([1] * 20), run([2] * 20))
    missed = 100 * stats.binomtest(0, 20).proportion_ci(0.95, method="wilson").high
    assert (everything.low, everything.high) == pytest.approx((100 - 2 * missed, 100))
    assert everything.is_there


def test_less_log_loss_is_a_gain():
    better = [outcome(f"x{n}", "y", log_probability=-1.0 - 0.01 * n) for n in range(20)]
    worse = [outcome(f"x{n}", "y", log_probability=-2.0 - 0.03 * n) for n in range(20)]
    gain = gain_over(better, worse, metric="log-loss")
    assert gain.gain == pytest.approx(1 + 0.02 * 9.5)
    low, high = interval(gain)
    assert 1 < low < gain.gain < high
    assert interval(gain_over(worse, better, metric="log-loss"))[1] < -1


def test_the_best_control():
    controls = {"never": run([2, 2, 2, 1]), "half": run([1, 2, 2]), "other half": run([2, 1, 2])}
    assert best_control(controls) == "half"  # the fourth fact is not asked of all
    assert best_control({"a": run([9]), "b": run([3])}, metric="MRR") == "b"
    losses = {"a": [outcome("x", "y", log_probability=-3.0)], "b": [outcome("x", "y", log_probability=-2.0)]}
    assert best_control(losses, metric="log-loss") == "b"
    with pytest.raises(UsageError, match="no dev fact in common"):
        best_control({"a": run([1]), "b": []})


def claims(unit, trials=100):
    """How often a gain is claimed for a run and a control that know nothing, but each prefer one y at random."""
    random = np.random.default_rng(0)
    ys = [f"y{n}" for n in random.zipf(1.5, 200).clip(max=40)]
    preferring = {
        favourite: [outcome(f"x{n}", y, 1 if y == f"y{favourite}" else 2) for n, y in enumerate(ys)]
        for favourite in range(1, 5)
    }
    claimed = 0
    for trial in range(trials):
        one, other = (preferring[favourite] for favourite in random.integers(1, 5, 2).tolist())
        claimed += interval(gain_over(one, other, unit=unit, resamples=500, seed=trial))[0] > 0
    return claimed


def test_knowing_nothing_is_rarely_a_gain():
    """Facts that a preference for one y answers alike are no independent evidence; drawn by y, they do not pass."""
    assert claims("y") <= 7
    assert claims("fact") > 7  # which is why gains can be had by y


def test_independent_luck_is_rarely_a_gain():
    random = np.random.default_rng(1)
    claimed = 0
    for trial in range(200):
        a, b = (run(1 + (random.random(150) > 0.2)) for _ in range(2))
        claimed += interval(gain_over(a, b, resamples=500, seed=trial))[0] > 0
    assert claimed <= 12  # 5 expected, at 2.5 % of each side; three standard errors more
