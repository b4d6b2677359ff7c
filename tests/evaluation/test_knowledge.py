"""Knowledge by hand: which control counts, what is left over it, and how often it is claimed where there is none."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from builders.outcomes import interval, knowledge_over, outcome
from scipy import stats

from askwell.data.facts import SplitName
from askwell.errors import UsageError
from askwell.evaluation.knowledge import Controls, best_control, knowledge
from askwell.evaluation.outcomes import Outcome
from askwell.files import to_json
from askwell.views.scores import control_sentences


def run(ranks, y="y{}"):
    return [outcome(f"x{number}", y.format(number), rank) for number, rank in enumerate(ranks)]


def test_the_gain_is_over_the_control_that_is_best_on_dev():
    controls = {
        "majority": {"dev": run([1, 2, 2, 2]), "test": run([1] * 8 + [2] * 12)},
        "prior": {"dev": run([1, 1, 2, 2]), "test": run([1] * 2 + [2] * 18)},
    }
    found = knowledge_over(run([1] * 15 + [2] * 5), controls)
    assert found.control == "prior"  # best on dev, though it is the worse one on test
    assert {name: (s["dev"], s["test"]) for name, s in found.controls.items()} == {
        "majority": (25, 40),
        "prior": (50, 10),
    }
    assert (found.score, found.control_score, found.gain) == (75, 10, 65)
    assert (found.unit, found.average, found.metric, found.facts) == ("y", "micro", "P@1", 20)
    # Every fact has a y of its own: 13 wins, no loss.
    assert found.p == pytest.approx(2 / 2**13)
    # 65 ± 1.96 · √(0.65 · 0.35 / 20)
    assert (found.low, found.high) == pytest.approx((65 - 20.9, 65 + 20.9), abs=5.1)
    assert found.is_there
    document = json.loads(json.dumps(to_json(found)))
    assert document["control"] == "prior"
    assert document["gain"] == 65
    assert document["controls"]["majority"] == {"dev": 25, "test": 40}


def test_a_control_whose_searches_were_all_cut_does_not_count():
    cut = [replace(one, rank_at_most=math.inf) for one in run([1, 1])]  # first among what was found, or anywhere
    controls: dict[str, dict[SplitName, list[Outcome]]] = {
        "majority": {"dev": run([1, 2]), "test": run([2, 2])},
        "prior": {"dev": cut, "test": cut},
        "masked": {"dev": [*run([2]), *cut[1:]], "test": [*run([2]), *cut[1:]]},
    }
    found = knowledge_over(run([1, 2]), controls)
    assert found.control == "majority"
    assert found.controls == {"majority": {"dev": 50, "test": 0}, "masked": {"dev": 0, "test": 0}}
    figures = Controls(dict.fromkeys(controls, "about"), controls, {}).figures()
    assert figures["prior"].test is None
    assert figures["prior"].dev is None
    assert figures["masked"].test == {"P@1": 0, "P@10": 100, "MRR": 50}  # of the one whose rank, 2, is known
    assert knowledge(run([1]), {"prior": {"dev": cut, "test": cut}}) is None


def test_facts_with_one_y_are_one_witness():
    same_y = {"nothing": {"dev": run([2], y="y"), "test": run([2] * 30, y="y")}}
    assert knowledge_over(run([1] * 30, y="y"), same_y).p == 1.0  # one unit, whose sign could have been the other
    assert not knowledge_over(run([1] * 30, y="y"), same_y).is_there
    assert knowledge_over(run([1] * 30, y="y"), same_y, unit="fact").is_there


def test_seeds():
    controls = {
        "low": {"dev": run([9, 9]), "test": run([4, 4])},
        "high": {"dev": {0: run([1, 9]), 1: run([9, 1])}, "test": {0: run([1, 4]), 1: run([4, 2])}},
    }
    found = knowledge_over({0: run([1, 1]), 1: run([1, 2])}, controls)
    assert found.control == "high"
    assert found.controls["high"]["test"] == pytest.approx(100 / 4)
    assert found.gain == pytest.approx(100 * (3 - 1) / 4)
    # "steady" gets one of two facts in every seed, "lucky" both in one of three.
    seeds = {"lucky": {0: run([1, 1]), 1: run([2, 2]), 2: run([2, 2])}, "steady": run([1, 2])}
    assert best_control(seeds) == "steady"


def test_without_a_control_nothing_is_said():
    assert knowledge(run([1]), {}) is None
    assert knowledge(run([1]), {"majority": {"test": run([1])}}) is None


def gain_over(outcomes, control, *, unit="fact", **options):
    """The gain over a single control."""
    return knowledge_over(outcomes, {"control": {"dev": control, "test": control}}, unit=unit, **options)


def test_searches_that_were_all_cut_show_nothing():
    # As for an LM with random weights, whose answers are so improbable that no rank is ever known.
    cut = [replace(one, rank_at_most=math.inf) for one in run([1, 1, 1])]
    assert knowledge(cut, {"majority": {"dev": run([2]), "test": run([2, 2, 2])}}) is None
    known = knowledge_over([*cut[:2], run([1, 1, 1])[2]], {"majority": {"dev": run([2]), "test": run([2, 2, 2])}})
    assert known.facts == 1


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
    assert "100.0 (95 % interval –), which may be chance." in control_sentences(gain)[1]
    everything = gain_over(run([1] * 20), run([2] * 20))
    missed = 100 * stats.binomtest(0, 20).proportion_ci(0.95, method="wilson").high
    assert (everything.low, everything.high) == pytest.approx((100 - 2 * missed, 100))
    assert everything.is_there


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
