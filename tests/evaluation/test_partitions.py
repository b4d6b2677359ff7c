"""Each partition on facts sorted by hand."""

import pytest
from builders.outcomes import outcome

from askwell.data.facts import Fact, Relation
from askwell.errors import BadOption
from askwell.evaluation.partitions import (
    by_cardinality,
    by_control,
    by_frequency_of_y,
    by_length_of_x,
    by_seen_y,
    by_y_in_x,
    scores_of_parts,
)

TRAIN = [Fact(f"t{n}", "often") for n in range(10)] + [Fact("t", "once"), Fact("u", "twice"), Fact("v", "twice")]
RELATIONS = {
    "r": Relation.of("r", TRAIN, [Fact("d", "dev only")], [Fact("e", "once")]),
    "s": Relation.of("s", [Fact("t", "other")], [Fact("d", "dev")], [Fact("e", "once")]),
}


def xs(parts):
    return {label: [outcome.x for outcome in outcomes] for label, outcomes in parts.items()}


def test_facts_are_parted_by_whether_train_of_their_relation_has_their_y():
    outcomes = [
        outcome("a", "once"),
        outcome("b", "dev only"),
        outcome("c", "once", relation="s"),
        outcome("d", "often"),
    ]
    assert xs(by_seen_y(outcomes, RELATIONS)) == {"seen y": ["a", "d"], "unseen y": ["b", "c"]}
    assert xs(by_seen_y(outcomes[:1], RELATIONS)) == {"seen y": ["a"]}
    with pytest.raises(BadOption, match="relation q"):
        by_seen_y([outcome("a", "once", relation="q")], RELATIONS)


def test_y_in_x():
    outcomes = [outcome("Paris Opera", "paris"), outcome("Opera", "Paris")]
    assert xs(by_y_in_x(outcomes)) == {"y in x": ["Paris Opera"], "y not in x": ["Opera"]}


def test_facts_are_parted_by_the_cardinality_of_their_relation():
    outcomes = [outcome("a", "1"), outcome("b", "1", relation="s"), outcome("c", "2")]
    assert xs(by_cardinality(outcomes, {"r": "N-M", "s": "1-1"})) == {"1-1": ["b"], "N-M": ["a", "c"]}


def test_frequency_of_y():
    outcomes = [outcome(y, y) for y in ("often", "once", "twice", "never")]
    assert xs(by_frequency_of_y(outcomes, RELATIONS)) == {
        "0": ["never"],
        "1–9": ["once", "twice"],
        "10–99": ["often"],
    }
    assert xs(by_frequency_of_y(outcomes, RELATIONS, edges=(1, 2))) == {
        "0": ["never"],
        "1": ["once"],
        "2+": ["often", "twice"],
    }
    for edges in ((), (2, 1), (0, 1), (1, 1)):
        with pytest.raises(BadOption):
            by_frequency_of_y(outcomes, RELATIONS, edges=edges)


def test_length_of_x():
    outcomes = [outcome(x, "y") for x in ("a", "a b", "a b c", "a b c d", "a b c d e", "b")]
    assert xs(by_length_of_x(outcomes)) == {
        "1": ["a", "b"],
        "2": ["a b"],
        "3": ["a b c"],
        "4+": ["a b c d", "a b c d e"],
    }
    assert list(by_length_of_x(outcomes, longest=2)) == ["1", "2+"]


def test_easy_and_hard():
    outcomes = [outcome(x, "y", 5) for x in ("a", "b", "c", "d")]
    first = [outcome("a", "y", 1), outcome("b", "y", 2), outcome("c", "z", 1)]
    second = [outcome("a", "y", 7), outcome("b", "y", 1.5), outcome("c", "y", 3), outcome("d", "y", 1, relation="s")]
    parts = by_control(outcomes, [first, second])
    assert xs(parts) == {"easy": ["a"], "hard": ["b", "c"], "no control": ["d"]}


def test_scores_of_parts():
    outcomes = [outcome("a", "y", 1), outcome("b", "y", 2), outcome("c c", "y", 4)]
    scores = scores_of_parts(by_length_of_x(outcomes))
    assert scores["1"]["P@1"] == 50
    assert scores["1"]["MRR"] == pytest.approx(75)
    assert scores["2"]["MRR"] == pytest.approx(25)
