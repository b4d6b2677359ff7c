"""Every measure of the audit on splits small enough to be counted by hand."""

import math

import pytest

from askwell.data.facts import Fact, SplitLines
from askwell.data.names import FactSet
from askwell.data.split_audit import (
    audit_relation,
    audit_sentences,
    audit_set,
    copy_from_train,
    copy_from_x,
    is_inside,
    majority_y,
)


def facts(*pairs: str) -> tuple[Fact, ...]:
    return tuple(Fact(*pair.split(">")) for pair in pairs)


SMALL = SplitLines(
    "small",
    train=facts("a>P", "a>P", "a>Q", "b>Q", "c>P", "d>R"),
    dev=facts("e>P", "a>Q"),
    test=facts("a>P", "a>P", "a>S", "f>Q", "Lower r end>R", "e>P", "g>T", "the T>T"),
)
# Test has 8 lines: a>P twice, and 7 distinct facts.


def test_counts_by_hand():
    audit = audit_relation(SMALL)
    assert audit.facts == {"train": 6, "dev": 2, "test": 8}
    assert audit.duplicates == {"train": 1, "dev": 0, "test": 1}
    # a>P a>Q b>Q c>P d>R, e>P, a>S f>Q Lower>R g>T the>T
    assert audit.distinct == 11
    assert audit.leaked_pairs == 2  # a>P, in both its lines
    assert audit.leaked_x == 3  # the lines of a
    assert audit.in_dev == 1  # e>P
    assert audit.dev_in_train == 1  # a>Q
    assert audit.unseen_y == 3  # S, T, T
    assert audit.several_golds == 3  # the lines of a, with P and S
    assert audit.several_golds_all == 3
    assert audit.majority == 3  # P: three of train's six lines
    assert audit.copy_train_y == 2  # a>P
    assert audit.ys == {"train": 3, "dev": 2, "test": 5}
    assert audit.largest == 3  # P


def test_y_in_x_by_hand():
    # "Lower r end" holds R in small letters, "the T" holds T.
    assert audit_relation(SMALL).y_in_x == 2
    # T is no y of train, so only R can be copied.
    assert audit_relation(SMALL).copy_x == 1


def test_effective_ys_are_two_to_the_entropy_of_tests_ys():
    # 3, 2, 1, 1, 1 of 8.
    entropy = -(3 / 8 * math.log2(3 / 8) + 2 / 8 * math.log2(2 / 8) + 3 * 1 / 8 * math.log2(1 / 8))
    assert audit_relation(SMALL).effective_ys == pytest.approx(2**entropy)
    even = SplitLines("even", facts("a>P"), facts("b>P"), facts("c>1", "d>2", "e>3", "f>4"))
    assert audit_relation(even).effective_ys == pytest.approx(4)


def test_several_golds_of_other_splits_are_told_apart():
    splits = SplitLines("r", facts("a>P"), facts("b>P"), facts("a>Q", "b>P", "c>R", "c>R"))
    audit = audit_relation(splits)
    assert audit.several_golds == 0  # c>R twice is one gold
    assert audit.several_golds_all == 1  # a has P in train


def test_the_first_in_the_file_wins_a_tie():
    assert majority_y(facts("a>P", "b>Q", "c>Q", "d>P")) == "P"
    assert majority_y(facts("b>Q", "a>P", "c>Q", "d>P")) == "Q"
    copy = copy_from_train(facts("a>P", "a>Q", "b>P", "b>Q", "b>Q"))
    assert (copy.get("a"), copy.get("b"), copy.get("c")) == ("P", "Q", None)


def test_the_longest_y_inside_x():
    copy = copy_from_x(facts("a>York", "b>New York", "c>new", "d>New", "e>New"))
    assert copy("the NEW YORK Times") == "New York"
    assert copy("Yorkshire") == "York"
    assert copy("New and old") == "New"  # as common in small letters; most common as New
    assert copy("Boston") is None
    same_length = copy_from_x(facts("a>ab", "b>cd", "c>cd"))
    assert same_length("abcd") == "cd"
    assert copy_from_x(facts("a>ab", "b>cd"))("cd ab") == "ab"


def test_y_is_part_of_x_regardless_of_case():
    assert is_inside("paris", "City of Paris")
    assert not is_inside("Paris", "Par is")


def test_a_set_has_the_sums_and_both_averages():
    other = SplitLines("other", facts("x>P"), facts("y>P"), facts("z>P", "x>P"))
    document = audit_set(FactSet("both", (SMALL, other), is_single=False)).as_json()
    assert document["facts"] == {"train": 7, "dev": 3, "test": 10}
    assert document["distinct"] == 14
    assert document["leaked_pairs"] == 3
    assert document["unseen_y"] == pytest.approx(30)
    assert document["y_in_x"] == pytest.approx(20)
    assert document["several_golds"] == pytest.approx(30)
    assert document["majority"]["micro"] == pytest.approx(100 * (3 + 2) / 10)
    assert document["majority"]["macro"] == pytest.approx((100 * 3 / 8 + 100) / 2)
    assert document["copy_train_y"] == pytest.approx(30)
    assert list(document["relations"]) == ["small", "other"]
    assert document["relations"]["other"]["majority"] == {"micro": 100, "macro": 100}
    keys = ["facts", "distinct", "leaked_pairs", "unseen_y", "y_in_x", "several_golds", "majority", "copy_train_y"]
    assert list(document) == [*keys, "details", "relations"]
    assert list(document["relations"]["small"]) == [*keys, "details"]


def test_sentences_tell_of_leaks_and_are_silent_where_there_are_none():
    told = " ".join(audit_sentences(audit_set(FactSet("small", (SMALL,), is_single=True))))
    assert "2 of 8 test facts (25.0 %) are also in train" in told
    assert "answering with train's y for the same x scores 25.0 %" in told
    assert "Test facts that are also in dev: 1." in told
    lines = SplitLines("r", facts("a>P"), facts("b>P"), facts("c>P"))
    clean = " ".join(audit_sentences(audit_set(FactSet("clean", (lines,), is_single=True))))
    assert "No test fact is in train." in clean
    assert "part of x" not in clean
    assert "several" not in clean
