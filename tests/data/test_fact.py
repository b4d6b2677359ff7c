import hashlib
import pickle
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askwell.data.facts import Counts, Fact, Relation
from askwell.errors import BadOption

A1, A2, B1, C1, D1 = Fact("a", "1"), Fact("a", "2"), Fact("b", "1"), Fact("c", "1"), Fact("d", "1")

# a has two golds, over train and test. A1 stands in all three splits, B1 in train and test; test holds B1 three times.
MESSY = Relation.of("messy", train=[B1, A1, B1], dev=[A1, C1], test=[B1, A2, B1, D1, A1, B1])


def test_facts_are_ordered_by_x_then_y_and_frozen():
    assert sorted([B1, A2, C1, A1]) == [A1, A2, B1, C1]
    with pytest.raises(FrozenInstanceError):
        A1.x = "z"  # ty: ignore[invalid-assignment]


def test_splits_are_in_canonical_order_with_repeated_facts_kept():
    assert MESSY.train == (A1, B1, B1)
    assert MESSY.dev == (A1, C1)
    assert MESSY.test == (A1, A2, B1, B1, B1, D1)


def test_even_a_relation_made_by_hand_is_in_canonical_order():
    assert Relation("r", (B1, A1), (C1,), (D1,), MESSY.counts).train == (A1, B1)


def test_golds_are_those_of_all_splits_sorted_and_distinct():
    assert MESSY.golds == {"a": ("1", "2"), "b": ("1",), "c": ("1",), "d": ("1",)}
    relation = Relation.of("r", [Fact("a", "z")], [Fact("a", "m")], [Fact("a", "b"), Fact("a", "z")])
    assert relation.golds == {"a": ("b", "m", "z")}


def test_split_by_name():
    relation = Relation.of("r", [A1], [B1], [C1])
    assert [relation.split(name) for name in ("train", "dev", "test")] == [(A1,), (B1,), (C1,)]


def test_split_by_a_wrong_name_lists_the_right_ones():
    with pytest.raises(BadOption, match=r"'valid'; did you mean dev\?"):
        MESSY.split("valid")
    with pytest.raises(BadOption, match=r"'all'; choose from train, dev, test"):
        MESSY.split("all")


def test_counts_by_hand():
    assert MESSY.counts == Counts(
        read=11,
        duplicates_train=1,
        duplicates_dev=0,
        duplicates_test=2,
        removed=0,
        train_dev=1,  # A1
        train_test=2,  # A1, B1
        dev_test=1,  # A1
        in_two_splits=2,  # A1 counts once
        test_in_train=4,  # A1 once, B1 three times
        several_golds=1,  # a
    )
    assert MESSY.counts.duplicates == 3


def test_counts_as_json():
    assert MESSY.counts.as_json() == {
        "read": 11,
        "duplicates_train": 1,
        "duplicates_dev": 0,
        "duplicates_test": 2,
        "removed": 0,
        "train_dev": 1,
        "train_test": 2,
        "dev_test": 1,
        "in_two_splits": 2,
        "test_in_train": 4,
        "several_golds": 1,
        "duplicates": 3,
    }


def test_removed_lines_count_as_read_and_as_duplicates():
    counts = Counts.of([A1], [B1], [C1], removed=5)
    assert (counts.read, counts.duplicates, counts.removed) == (8, 5, 5)


def test_report_is_empty_when_there_is_nothing_to_report():
    assert Counts.of([A1], [B1], [C1]).lines() == []


def test_counts_are_told_in_sentences_without_what_is_zero():
    assert MESSY.counts.lines() == [
        "1 line repeats a fact of train",
        "2 lines repeat a fact of test",
        "1 fact is in both train and dev",
        "2 facts are in both train and test (4 lines of test)",
        "1 fact is in both dev and test",
        "1 x has several right y's",
    ]
    assert replace(Counts.of([A1], [B1], [C1]), removed=2, duplicates_dev=1, several_golds=3).lines() == [
        "1 line repeats a fact of dev",
        "2 repeated lines removed before the split",
        "3 x have several right y's",
    ]


def test_digest_is_the_hash_of_the_sorted_content():
    relation = Relation.of("r", [B1, A1], [Fact("é", '"')], [D1])
    content = rb'[[["a","1"],["b","1"]],[["\u00e9","\""]],[["d","1"]]]'
    assert relation.digest == hashlib.sha256(content).hexdigest()


def test_digest_does_not_depend_on_the_name():
    assert Relation.of("r", [A1], [B1], [C1]).digest == Relation.of("s", [A1], [B1], [C1]).digest


@pytest.mark.parametrize(
    "other",
    [
        ([B1], [A1], [C1]),
        ([A1], [B1], [D1]),
        ([A1, A1], [B1], [C1]),
        ([A1, B1], [], [C1]),
        ([Fact("a1", "")], [B1], [C1]),
    ],
    ids=["splits swapped", "another fact", "repeated fact", "fact moved", "x and y run together"],
)
def test_digest_tells_different_contents_apart(other):
    assert Relation.of("r", *other).digest != Relation.of("r", [A1], [B1], [C1]).digest


def test_a_relation_survives_pickling_after_use():
    assert MESSY.golds
    copy = pickle.loads(pickle.dumps(MESSY))
    assert copy == MESSY
    assert copy.golds == {"a": ("1", "2"), "b": ("1",), "c": ("1",), "d": ("1",)}


FACTS = st.sampled_from([Fact(x, y) for x in "abcd" for y in "123"])


@given(st.lists(st.tuples(st.sampled_from(["train", "dev", "test"]), FACTS), max_size=25))
def test_counts_and_golds_equal_a_slow_count(placed):
    splits = {name: [fact for place, fact in placed if place == name] for name in ("train", "dev", "test")}
    relation = Relation.of("r", splits["train"], splits["dev"], splits["test"])
    all_pairs = [Fact(x, y) for x in "abcd" for y in "123"]
    stands = {fact: [name for name in splits if fact in splits[name]] for fact in all_pairs}
    counts = relation.counts
    assert counts.read == len(placed)
    assert counts.duplicates == len(placed) - sum(map(len, stands.values()))
    assert counts.in_two_splits == sum(len(names) >= 2 for names in stands.values())
    assert counts.train_dev == sum("train" in names and "dev" in names for names in stands.values())
    assert counts.train_test == sum("train" in names and "test" in names for names in stands.values())
    assert counts.dev_test == sum("dev" in names and "test" in names for names in stands.values())
    assert counts.test_in_train == sum(place == "test" and ("train", fact) in placed for place, fact in placed)
    golds = {x: tuple(y for y in "123" if stands[Fact(x, y)]) for x in "abcd"}
    assert relation.golds == {x: ys for x, ys in golds.items() if ys}
    assert counts.several_golds == sum(len(ys) > 1 for ys in golds.values())
