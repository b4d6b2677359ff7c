"""Shares, comparisons and the prior, against counts by hand."""

import pytest
from made_up import figures

from askwell.views.told import MANUAL, MIXTURE, MOST_FREQUENT


def test_shares_are_of_the_facts_of_their_kind():
    made = figures({"manual": {"a": (1, 0), "b": (6, 2)}}, {"a": (4, 2), "b": (8, 2)})
    assert made.p_at_1("manual", "a", "told") == 25.0
    assert made.p_at_1("manual", "a", "withheld") == 0.0
    assert made.p_at_1("manual", "b", "told") == 75.0
    assert made.macro("manual", "told") == 50.0
    assert made.macro("manual", "withheld") == 50.0
    assert made.count_right("manual", "told") == 7
    assert len(made.facts("told", "b")) == 8


def test_a_relation_without_facts_of_a_kind_has_no_share_and_no_part_in_the_mean():
    made = figures({"manual": {"a": (1, 0), "b": (6, 0)}}, {"a": (4, 2), "b": (8, 0)})
    assert made.p_at_1("manual", "b", "withheld") is None
    assert made.macro("manual", "withheld") == 0.0
    assert figures({}, {"a": (3, 0)}).macro("manual", "withheld") is None


def test_two_methods_are_compared_fact_by_fact():
    made = figures({"soft-mixture": {"a": (8, 0)}, "manual": {"a": (0, 0)}}, {"a": (10, 5)})
    better = made.compare(MIXTURE, MANUAL, "told")
    assert (better.won, better.lost, better.facts) == (8, 0, 10)
    assert better.p == pytest.approx(2 / 2**8)
    assert better.verdict == "better"
    assert made.compare(MANUAL, MIXTURE, "told").verdict == "worse"
    same = made.compare(MIXTURE, MANUAL, "withheld")
    assert (same.won, same.lost, same.p, same.verdict) == (0, 0, 1.0, "unclear")


def test_five_wins_in_a_row_can_be_chance():
    made = figures({"soft-mixture": {"a": (5, 0)}}, {"a": (10, 0)})
    comparison = made.compare(MIXTURE, MANUAL, "told")
    assert comparison.p == pytest.approx(2 / 2**5)
    assert comparison.verdict == "unclear"


def test_told_against_withheld():
    def verdict(told: int, withheld: int) -> str:
        return figures({"soft-mixture": {"a": (told, withheld)}}, {"a": (20, 20)}).told_against_withheld(MIXTURE)

    assert verdict(20, 0) == "better"
    assert verdict(0, 20) == "worse"
    assert verdict(10, 10) == "unclear"
    assert verdict(11, 10) == "unclear"


def test_told_facts_are_not_better_if_the_mean_and_the_sum_disagree():
    """a has few told facts and many withheld ones, and is easy; b is the other way round, and hard."""
    made = figures(
        {"soft-mixture": {"a": (10, 360), "b": (40, 0)}},
        {"a": (10, 400), "b": (400, 10)},
    )
    mean_told, mean_withheld = made.macro(MIXTURE, "told"), made.macro(MIXTURE, "withheld")
    assert (mean_told, mean_withheld) == (55.0, 45.0)
    assert made.count_right(MIXTURE, "told") / 410 < made.count_right(MIXTURE, "withheld") / 410
    assert made.told_against_withheld(MIXTURE) == "unclear"


def test_the_prior_is_a_method_like_others():
    made = figures({MOST_FREQUENT: {"a": (1, 1)}}, {"a": (2, 4)})
    assert made.p_at_1(MOST_FREQUENT, "a", "withheld") == 25.0
