"""Each partition on facts sorted by hand."""

import pytest
from builders.outcomes import outcome

from askwell.data.facts import Fact, Relation
from askwell.evaluation.scoring import by_control, partitions_of, scores_of_parts

TRAIN = [Fact(f"t{n}", "often") for n in range(10)] + [Fact("t", "once"), Fact("u", "twice"), Fact("v", "twice")]
RELATION = Relation.of("r", TRAIN, [Fact("d", "dev only")], [Fact("e", "once")])


def xs(parts):
    return {label: [outcome.x for outcome in outcomes] for label, outcomes in parts.items()}


def test_facts_are_parted_by_whether_and_how_often_train_has_their_y():
    outcomes = [outcome("a", "once"), outcome("b", "dev only"), outcome("c", "twice"), outcome("d", "often")]
    parts = partitions_of(outcomes, RELATION)
    assert xs(parts["seen y"]) == {"seen y": ["a", "c", "d"], "unseen y": ["b"]}
    assert xs(parts["frequency of y"]) == {"0": ["b"], "1–9": ["a", "c"], "10–99": ["d"]}
    assert xs(partitions_of(outcomes[:1], RELATION)["seen y"]) == {"seen y": ["a"]}


def test_y_in_x():
    parts = partitions_of([outcome("Paris Opera", "paris"), outcome("Opera", "Paris")], RELATION)
    assert xs(parts["y in x"]) == {"y in x": ["Paris Opera"], "y not in x": ["Opera"]}


def test_length_of_x():
    outcomes = [outcome(x, "y") for x in ("a", "a b", "a b c", "a b c d", "a b c d e", "b")]
    lengths = {"1": ["a", "b"], "2": ["a b"], "3": ["a b c"], "4+": ["a b c d", "a b c d e"]}
    assert xs(partitions_of(outcomes, RELATION)["length of x"]) == lengths


def test_easy_and_hard():
    outcomes = [outcome(x, "y", 5) for x in ("a", "b", "c", "d")]
    first = [outcome("a", "y", 1), outcome("b", "y", 2), outcome("c", "z", 1)]
    second = [outcome("a", "y", 7), outcome("b", "y", 1.5), outcome("c", "y", 3), outcome("d", "y", 1, relation="s")]
    parts = by_control(outcomes, [first, second])
    assert xs(parts) == {"easy": ["a"], "hard": ["b", "c"], "no control": ["d"]}
    assert partitions_of(outcomes, RELATION, [first, second])["control"] == parts
    assert "control" not in partitions_of(outcomes, RELATION)


def test_scores_of_parts():
    outcomes = [outcome("a", "y", 1), outcome("b", "y", 2), outcome("c c", "y", 4)]
    scores = scores_of_parts(partitions_of(outcomes, RELATION)["length of x"])
    assert (scores["1"]["facts"], scores["1"]["P@1"]) == (2, 50)
    assert scores["1"]["MRR"] == pytest.approx(75)
    assert scores["2"]["MRR"] == pytest.approx(25)
