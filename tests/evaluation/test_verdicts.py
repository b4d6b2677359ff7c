"""Verdicts against a table made by hand, intervals against scipy, guesses against a count over all draws."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from builders.verdicts import asked, outcome
from scipy import stats

from askwell.errors import BadOption, UsageError
from askwell.evaluation.verdicts import STATES, AskedLM, Verdicts, exceeded, judge, roc_area, verdict_of

# Rows: before; columns: after. In the order by hand, tuned only, not.
BY_HAND = {
    "by hand": ("kept", "hidden", "gone"),
    "tuned only": ("kept", "kept", "gone"),
    "not": ("new", "new", "unknown"),
}


def judged(before: list[str], after: list[str], **options: object) -> Verdicts:
    return judge(asked("B", before), asked("A", after), **options)  # ty: ignore[invalid-argument-type]


def test_each_pair_of_states_has_its_verdict() -> None:
    for row, column in itertools.product(STATES, STATES):
        assert verdict_of(row, column) == BY_HAND[row][STATES.index(column)]


def test_a_table_made_by_hand() -> None:
    counts = {("by hand", "by hand"): 5, ("by hand", "tuned only"): 3, ("by hand", "not"): 2, ("not", "by hand"): 1}
    counts |= {("tuned only", "not"): 1, ("tuned only", "by hand"): 2, ("not", "not"): 4}
    pairs = [pair for pair, times in counts.items() for _ in range(times)]
    found = judged([before for before, _ in pairs], [after for _, after in pairs])
    assert {(row, column): n for row, of in found.table.items() for column, n in of.items() if n} == counts
    assert {name: share.count for name, share in found.verdicts.items()} == {
        "kept": 7, "hidden": 3, "gone": 3, "new": 1, "unknown": 4,
    }  # fmt: skip
    assert found.verdicts["gone"].of == 13
    assert found.verdicts["new"].of == 5
    # Clopper-Pearson in closed form, through the beta distribution.
    low, high = stats.beta.ppf(0.025, 3, 11), stats.beta.ppf(0.975, 4, 10)
    assert (found.verdicts["gone"].low, found.verdicts["gone"].high) == pytest.approx((low, high))
    assert (found.hidden.hidden, found.hidden.at_risk) == (3, 5)
    assert (found.by_hand.wins, found.by_hand.losses) == (3, 5)
    assert [one.verdict for one in found.changed] == [*["hidden"] * 3, *["gone"] * 3, "new", *["kept"] * 2]
    assert Counter(one.right for one in found.changed) == {
        (True, False, False, True): 3,
        (True, False, False, False): 2,
        (False, True, False, False): 1,
        (False, False, True, False): 1,
        (False, True, True, False): 2,
    }
    assert found.parts["words of y"] == {"1": {"kept": 7, "hidden": 3, "gone": 3, "new": 1, "unknown": 4}}


def test_facts_are_counted_in_parts_where_these_are_known() -> None:
    before = asked("B", ["by hand"] * 4, ["Oslo", "New York", "Rio de Janeiro", "Oslo"])
    hand = [outcome(f"x{n}", one.y, one.y if n == 0 else "?") for n, one in enumerate(before.by_hand)]
    tuned = [outcome(f"x{n}", one.y, one.y if n == 1 else "?") for n, one in enumerate(before.by_hand)]
    frequency = {("r", "Oslo"): 12, ("r", "New York"): 9}
    forgotten = {("r", "x1", "New York"), ("r", "x3", "Oslo")}
    after = AskedLM("A", hand, tuned)
    found = judge(before, after, frequency=frequency, kinds={"r": "N-1"}, forgotten=forgotten)
    counted = {
        what: {name: {verdict: n for verdict, n in of.items() if n} for name, of in parts.items()}
        for what, parts in found.parts.items()
    }
    assert counted == {
        "relation": {"r": {"kept": 1, "hidden": 1, "gone": 2}},
        "kind of relation": {"N-1": {"kept": 1, "hidden": 1, "gone": 2}},
        "words of y": {"1": {"kept": 1, "gone": 1}, "2": {"hidden": 1}, "3": {"gone": 1}},
        "frequency of y": {"0": {"gone": 1}, "1 to 9": {"hidden": 1}, "10 to 99": {"kept": 1, "gone": 1}},
        "made to forget": {"no": {"kept": 1, "gone": 1}, "yes": {"hidden": 1, "gone": 1}},
    }
    assert {*judge(before, after).parts} == {"relation", "words of y"}


def test_no_more_facts_are_hidden_than_there_are() -> None:
    ys = ["Rome"] * 12 + ["Oslo", "Lima", "Bern", "Kiev"]
    before = asked("B", ["by hand"] * 16, ys)
    hand = [outcome(f"x{n}", y, "?") for n, y in enumerate(ys)]
    found = judge(before, AskedLM("A", hand, [outcome(f"x{n}", y, y) for n, y in enumerate(ys)])).hidden
    # In some draws of ys Rome comes twice, with 24 hidden facts; of those that were asked, no more than 16 are.
    assert (found.hidden, found.beyond, found.high) == (16, 16.0, 16.0)
    assert 4 <= found.low < 16


def test_a_few_facts_that_are_all_alike_are_not_certain() -> None:
    found = judged(["by hand"] * 4, ["tuned only"] * 4).hidden
    assert (found.hidden, found.guesses, found.high) == (4, 0.0, 4.0)
    assert found.low == pytest.approx(4 * stats.beta.ppf(0.025, 4, 1))  # Clopper-Pearson for 4 of 4: 40 %


def test_an_lm_against_itself_changes_nothing() -> None:
    states = ["by hand", "tuned only", "not"] * 3
    found = judged(states, states)
    assert not found.changed
    assert found.by_hand.micro.difference == found.tuned.micro.difference == 0
    assert found.hidden.beyond == found.hidden.low == found.hidden.high == 0


def test_a_favourite_answer_is_a_guess() -> None:
    """AFTER answers "Rome" to everything: what it finds is what the answer to other x's says, and nothing beyond."""
    ys = ["Rome", "Oslo", "Rome", "Lima", "Rome", "Bern"]
    before = asked("B", ["by hand"] * 6, ys)
    hand = [outcome(f"x{n}", y, "?") for n, y in enumerate(ys)]
    tuned = [outcome(f"x{n}", y, "Rome") for n, y in enumerate(ys)]
    found = judge(before, AskedLM("A", hand, tuned)).hidden
    assert (found.hidden, found.guesses, found.beyond) == (3, 3.0, 0.0)
    assert found.low <= 0 <= found.high


def test_never_told_facts_count_nowhere_but_as_guesses() -> None:
    before, after = ["by hand"] * 8 + ["not"] * 4, ["tuned only"] * 8 + ["tuned only", "not", "not", "not"]
    never = {("r", f"x{n}", f"y{n}") for n in range(8, 12)}
    found = judged(before, after, never_told=never)
    assert found.facts == 8
    assert found.never_told == {"kept": 0, "hidden": 0, "gone": 0, "new": 1, "unknown": 3}
    assert found.hidden.guesses == pytest.approx(8 / 4)
    assert found.hidden.low < 6 < found.hidden.high


def test_wrong_ys_are_drawn_as_a_count_over_all_draws_says() -> None:
    ys, answers = ["a", "b", "b", "c", "d"], ["abbcd", "bbbcd", "cbdca", "bbacd"]
    sides = [[outcome(f"x{n}", y, row[n]) for n, y in enumerate(ys)] for row in answers]
    found = judge(AskedLM("B", sides[0], sides[1]), AskedLM("A", sides[2], sides[3]))
    expected = dict.fromkeys(found.verdicts, 0.0)
    for n, y in enumerate(ys):
        wrong = [other for other in ys if other != y]
        for drawn in wrong:
            right = [row[n] == drawn for row in answers]
            states = ["by hand" if hand else "tuned only" if tuned else "not" for hand, tuned in (right[:2], right[2:])]
            expected[BY_HAND[states[0]][STATES.index(states[1])]] += 1 / len(wrong) / len(ys)  # ty: ignore
    assert {name: share.guessed for name, share in found.verdicts.items()} == pytest.approx(expected)


def test_the_roc_area_is_mann_whitneys() -> None:
    random = np.random.default_rng(0)
    one, other = random.integers(0, 8, 30).astype(float), random.integers(2, 10, 21).astype(float)
    expected = stats.mannwhitneyu(one, other).statistic / (30 * 21)
    assert roc_area(one, other) == pytest.approx(expected)
    assert roc_area([1.0, 2.0], [0.0, -1.0]) == 1.0


def test_the_roc_area_of_a_scale_that_tells_all_apart() -> None:
    facts = [(f"x{n}", f"y{n}") for n in range(8)]
    hand = [outcome(x, y, "?", -5.0) for x, y in facts]
    tuned = [outcome(x, y, "?", -1.0 if n < 4 else -3.0) for n, (x, y) in enumerate(facts)]
    keys = [("r", x, y) for x, y in facts]
    found = judge(asked("B", ["by hand"] * 8), AskedLM("A", hand, tuned), forgotten=keys[:4], never_told=keys[4:])
    areas = {area.by: area.area for area in found.roc}
    assert areas == {"log-probability, hard prompts": 0.5, "log-probability, tuned prompts": 1.0}
    # A control that cannot give x0's y leaves that fact out of the third score, and of nothing else.
    prior = [outcome(x, y, "?", -math.inf if n == 0 else -0.5 * n) for n, (x, y) in enumerate(facts)]
    found = judge(
        asked("B", ["by hand"] * 8), AskedLM("A", hand, tuned), forgotten=keys[:4], never_told=keys[4:], prior=prior
    )
    # -0.5, 0, 0.5 above -1, -0.5, 0, 0.5: 1.5, 2.5 and 3.5 of 4.
    assert [(area.forgotten, area.never_told, area.area) for area in found.roc] == [
        (4, 4, 0.5), (4, 4, 1.0), (3, 4, pytest.approx(7.5 / 12)),
    ]  # fmt: skip


def test_conditions_are_about_the_bound_of_the_interval() -> None:
    found = judged(["by hand"] * 100, ["by hand"] * 90 + ["not"] * 10)
    low = stats.beta.ppf(0.025, 10, 91)  # 4.9 %
    assert found.verdicts["gone"].low == pytest.approx(low)
    said = exceeded(found, "gone > 2%")
    assert said is not None
    assert said.startswith("10 of 100 facts are gone, at least 4.9 %")
    assert exceeded(found, "gone>5%") is None
    assert exceeded(found, "gone > 4") is not None
    assert exceeded(found, "hidden > 0") is None
    with pytest.raises(BadOption, match="gone > 2%"):
        exceeded(found, "lost > 2")


def test_lms_without_a_fact_in_common_cannot_be_compared() -> None:
    with pytest.raises(UsageError, match="no fact in common"):
        judge(asked("B", ["not"]), AskedLM("A", [], []))
    assert math.isfinite(judged(["not"], ["not"]).hidden.low)
