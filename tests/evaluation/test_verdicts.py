"""What became of facts when an LM was changed."""

import math

import pytest

from askwell.errors import UsageError
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.verdicts import Ways, judge

RIGHT, WRONG = 1.0, 5.0
BEST = {"right": RIGHT, "wrong": WRONG}

# By hand, what comes of (before by hand, before tuned, after by hand, after tuned) for one fact.
TABLE = {
    (1, 1, 1, 1): "kept",
    (1, 1, 1, 0): "kept",
    (1, 0, 1, 0): "kept",
    (1, 1, 0, 1): "hidden",
    (1, 0, 0, 1): "hidden",
    (1, 1, 0, 0): "gone",
    (1, 0, 0, 0): "gone",
    (0, 1, 0, 0): "gone",
    (0, 1, 0, 1): "kept",
    (0, 1, 1, 0): "kept",
    (0, 1, 1, 1): "kept",
    (0, 0, 1, 0): "new",
    (0, 0, 0, 1): "new",
    (0, 0, 1, 1): "new",
    (0, 0, 0, 0): "unknown",
    (1, 0, 1, 1): "kept",
}


def outcome(x, y, answer, *, rank_at_most=math.nan):
    rank = RIGHT if answer == y else WRONG
    return Outcome("r", x, y, (y,), rank, rank, -1.0, (answer,), (0.5,), rank_at_most)


def asked(rows):
    """Both LMs' outcomes: for each x the y, and what each of the four ways answers."""
    sides = [[outcome(x, y, answers[way]) for x, (y, answers) in rows.items()] for way in range(4)]
    return Ways(sides[0], sides[1]), Ways(sides[2], sides[3])


@pytest.mark.parametrize(("answered", "verdict"), TABLE.items())
def test_verdicts_are_those_of_the_table(answered, verdict):
    rows = {"x": ("y", ["y" if right else "other" for right in answered])}
    (fact,) = judge(*asked(rows)).facts
    assert fact.verdict == verdict


def test_shares_stand_beside_what_guessing_gives():
    """Four facts with ys a, a, b, c; AFTER's tuned prompts say a to everything, which is hidden only where y is a."""
    rows = {
        "1": ("a", ["a", "a", "z", "a"]),
        "2": ("a", ["a", "a", "z", "a"]),
        "3": ("b", ["b", "b", "z", "a"]),
        "4": ("c", ["z", "z", "z", "a"]),
    }
    found = judge(*asked(rows))
    assert [fact.verdict for fact in found.facts] == ["hidden", "hidden", "gone", "unknown"]
    assert found.table["by hand"] == {"by hand": 0, "tuned only": 2, "not": 1}
    # If y of "3" were another (a, a or c), its answers b, b, z, a would be: a: not, then tuned only: new (2 of 3).
    assert found.facts[2].guessed["new"] == pytest.approx(2 / 3)
    assert found.facts[2].guessed["unknown"] == pytest.approx(1 / 3)
    # "1" with b or c instead of a: none of its answers.
    assert found.facts[0].guessed["unknown"] == 1.0
    assert found.shares["hidden"].facts == 2
    assert found.shares["hidden"].guessed == 0.0
    assert found.shares["new"].guessed == pytest.approx(2 / 3 + 2 / 3)
    assert found.shares["new"].beyond == pytest.approx((0 - 4 / 3) / 4)


def test_an_lm_against_itself_changes_nothing():
    rows = {str(n): ("y", ["y" if n % 2 else "z", "y"] * 2) for n in range(20)}
    found = judge(*asked(rows))
    assert found.shares["kept"].facts == 20
    assert found.shares["hidden"].facts == found.shares["gone"].facts == found.shares["new"].facts == 0


def test_facts_whose_search_was_cut_are_left_out_and_counted():
    before, after = asked({"1": ("a", ["a"] * 4), "2": ("b", ["b"] * 4)})
    cut = Ways([outcome("1", "a", "a", rank_at_most=7.0), *after.hard[1:]], after.tuned)
    found = judge(before, cut)
    assert found.unsettled == 1
    assert [fact.x for fact in found.facts] == ["2"]


def test_nothing_in_common_is_refused():
    before, _ = asked({"1": ("a", ["a"] * 4)})
    _, after = asked({"2": ("a", ["a"] * 4)})
    with pytest.raises(UsageError, match="nothing to compare"):
        judge(before, after)
