"""Knowledge by hand: which control counts, and what is left over it."""

import json

import pytest
from builders.outcomes import outcome

from askwell.data.facts import Fact, Relation
from askwell.errors import UsageError
from askwell.evaluation.knowledge import Answered, best_control, knowledge
from askwell.evaluation.partitions import partitions_of, scores_of_parts
from askwell.files import to_json


def run(ranks, y="y{}"):
    return [outcome(f"x{number}", y.format(number), rank) for number, rank in enumerate(ranks)]


def test_the_gain_is_over_the_control_that_is_best_on_dev():
    controls = {
        "majority": Answered(dev=run([1, 2, 2, 2]), test=run([1] * 8 + [2] * 12)),
        "prior": Answered(dev=run([1, 1, 2, 2]), test=run([1] * 2 + [2] * 18)),
    }
    found = knowledge(run([1] * 15 + [2] * 5), controls)
    assert found.best == "prior"  # best on dev, though it is the worse one on test
    assert {name: (s.dev, s.test) for name, s in found.controls.items()} == {"majority": (25, 40), "prior": (50, 10)}
    gain = found.gain
    assert (gain.score, gain.control_score, gain.gain) == (75, 10, 65)
    assert (gain.unit, gain.average, gain.metric, gain.facts) == ("y", "micro", "P@1", 20)
    # Every fact has a y of its own: 13 wins, no loss.
    assert gain.p == pytest.approx(2 / 2**13)
    # 65 ± 1.96 · √(0.65 · 0.35 / 20)
    assert (gain.low, gain.high) == pytest.approx((65 - 20.9, 65 + 20.9), abs=5.1)
    assert found.is_there
    document = json.loads(json.dumps(to_json(found.figures())))
    assert document["control"] == "prior"
    assert document["gain"] == 65
    assert document["controls"]["majority"] == {"dev": 25, "test": 40}


def test_facts_with_one_y_are_one_witness():
    same_y = {"nothing": Answered(dev=run([2], y="y"), test=run([2] * 30, y="y"))}
    assert knowledge(run([1] * 30, y="y"), same_y).gain.p == 1.0  # one unit, whose sign could have been the other
    assert not knowledge(run([1] * 30, y="y"), same_y).is_there
    assert knowledge(run([1] * 30, y="y"), same_y, unit="fact").is_there


def test_other_metrics_and_seeds():
    controls = {
        "low": Answered(dev=run([9, 9]), test=run([4, 4])),
        "high": Answered(dev={0: run([1, 9]), 1: run([9, 1])}, test={0: run([2, 4]), 1: run([4, 2])}),
    }
    found = knowledge({0: run([1, 1]), 1: run([1, 2])}, controls, metric="MRR")
    assert found.best == "high"
    assert found.controls["high"].test == pytest.approx(100 * (1 / 2 + 1 / 4) / 2)
    assert found.gain.gain == pytest.approx(100 * (3.5 - 1.5) / 4)
    # "steady" gets one of two facts in every seed, "lucky" both in one of three.
    seeds = {"lucky": {0: run([1, 1]), 1: run([2, 2]), 2: run([2, 2])}, "steady": run([1, 2])}
    assert best_control(seeds) == "steady"


def test_no_control_is_refused():
    with pytest.raises(UsageError, match="no control"):
        knowledge(run([1]), {})


def test_all_partitions_by_hand():
    relation = Relation.of("r", [Fact("a", "Rome"), Fact("b", "Rome"), Fact("c", "Lima")], [], [])
    outcomes = [outcome("New Lima", "Lima", 1), outcome("d", "Rome", 2), outcome("e f g h i", "Oslo", 1)]
    controls = [[outcome("New Lima", "Lima", 1), outcome("d", "Rome", 3)], [outcome("e f g h i", "Oslo", 2)]]
    parts = partitions_of(outcomes, {"r": relation}, controls, {"r": "N-1"})
    places = {
        name: {part: [outcomes.index(o) for o in of_part] for part, of_part in p.items()} for name, p in parts.items()
    }
    assert places == {
        "control": {"easy": [0], "hard": [1, 2]},
        "seen y": {"seen y": [0, 1], "unseen y": [2]},
        "y in x": {"y in x": [0], "y not in x": [1, 2]},
        "cardinality": {"N-1": [0, 1, 2]},
        "frequency of y": {"0": [2], "1–9": [0, 1]},
        "length of x": {"1": [1], "2": [0], "4+": [2]},
    }
    assert scores_of_parts(parts["control"])["hard"]["P@1"] == 50
    assert set(partitions_of(outcomes, {"r": relation})) == set(parts) - {"control", "cardinality"}
