"""Knowledge by hand: which control counts, and what is left over it."""

import json

import pytest
from builders.outcomes import knowledge_over, outcome

from askwell.evaluation.knowledge import best_control, knowledge
from askwell.files import to_json


def run(ranks, y="y{}"):
    return [outcome(f"x{number}", y.format(number), rank) for number, rank in enumerate(ranks)]


def test_the_gain_is_over_the_control_that_is_best_on_dev():
    controls = {
        "majority": {"dev": run([1, 2, 2, 2]), "test": run([1] * 8 + [2] * 12)},
        "prior": {"dev": run([1, 1, 2, 2]), "test": run([1] * 2 + [2] * 18)},
    }
    found = knowledge_over(run([1] * 15 + [2] * 5), controls)
    assert found.control == "prior"  # best on dev, though it is the worse one on test
    assert {name: (s.dev, s.test) for name, s in found.controls.items()} == {"majority": (25, 40), "prior": (50, 10)}
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


def test_facts_with_one_y_are_one_witness():
    same_y = {"nothing": {"dev": run([2], y="y"), "test": run([2] * 30, y="y")}}
    assert knowledge_over(run([1] * 30, y="y"), same_y).p == 1.0  # one unit, whose sign could have been the other
    assert not knowledge_over(run([1] * 30, y="y"), same_y).is_there
    assert knowledge_over(run([1] * 30, y="y"), same_y, unit="fact").is_there


def test_other_metrics_and_seeds():
    controls = {
        "low": {"dev": run([9, 9]), "test": run([4, 4])},
        "high": {"dev": {0: run([1, 9]), 1: run([9, 1])}, "test": {0: run([2, 4]), 1: run([4, 2])}},
    }
    found = knowledge_over({0: run([1, 1]), 1: run([1, 2])}, controls, metric="MRR")
    assert found.control == "high"
    assert found.controls["high"].test == pytest.approx(100 * (1 / 2 + 1 / 4) / 2)
    assert found.gain == pytest.approx(100 * (3.5 - 1.5) / 4)
    # "steady" gets one of two facts in every seed, "lucky" both in one of three.
    seeds = {"lucky": {0: run([1, 1]), 1: run([2, 2]), 2: run([2, 2])}, "steady": run([1, 2])}
    assert best_control(seeds) == "steady"


def test_without_a_control_nothing_is_said():
    assert knowledge(run([1]), {}) is None
    assert knowledge(run([1]), {"majority": {"test": run([1])}}) is None
