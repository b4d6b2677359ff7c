"""Whole comparisons of runs made by hand."""

import itertools
import math

import pytest
from builders.outcomes import interval, outcome, run
from scipy import stats

from askwell.errors import BadOption, UsageError
from askwell.evaluation.comparison import compare

A = run({"a": 1, "b": 1, "c": 1, "d": 20, "e": 4, "only a": 1})
B = run({"a": 1, "b": 2, "c": 11, "d": 1, "e": 5, "only b": 1, "only b too": 1})


def test_a_comparison_matches_one_computed_by_hand():
    comparison = compare(A, B)
    assert (comparison.facts, comparison.only_a, comparison.only_b) == (5, 1, 2)
    micro = comparison.micro
    assert (micro.a, micro.b, micro.difference) == pytest.approx((60, 40, 20))
    # Differences 0, 1, 1, -1, 0: all 8 flips have a sum of 1 or more, or of -1 or less.
    assert (micro.p, micro.exact) == (1, True)
    assert (comparison.wins, comparison.losses, comparison.ties) == (2, 1, 2)
    assert comparison.sign_p == 1
    assert comparison.macro == micro  # one relation
    assert [(fact.x, fact.difference) for fact in comparison.changed] == [("b", 100), ("c", 100), ("d", -100)]
    assert (comparison.changed[1].a_answer, comparison.changed[1].b_answer) == ("y", "z")
    assert (comparison.changed[1].a_rank, comparison.changed[1].b_rank) == (1, 11)


def test_metrics_by_hand():
    assert compare(A, B, metric="P@10").micro.difference == pytest.approx(80 - 80)
    mrr = compare(A, B, metric="MRR")
    assert mrr.micro.a == pytest.approx(100 * (3 + 1 / 20 + 1 / 4) / 5)
    assert mrr.micro.b == pytest.approx(100 * (1 + 1 / 2 + 1 / 11 + 1 + 1 / 5) / 5)
    assert (mrr.wins, mrr.losses) == (3, 1)
    assert mrr.changed[0].x == "d"  # 1/20 against 1 is the largest
    with pytest.raises(BadOption, match="confidence"):
        compare(A, B, confidence=95.0)


def test_less_log_loss_is_better():
    a = [outcome("a", log_probability=-1.0), outcome("b", log_probability=-2.0)]
    b = [outcome("a", log_probability=-3.0), outcome("b", log_probability=-2.0)]
    comparison = compare(a, b, metric="log-loss")
    assert comparison.micro.difference == pytest.approx(-1)  # nats, not per cent
    assert (comparison.wins, comparison.losses, comparison.ties) == (1, 0, 1)


def test_a_probability_of_0_has_no_log_loss():
    broken = [outcome("a", rank=9, log_probability=-math.inf)]
    with pytest.raises(UsageError, match="1 in B"):
        compare(run({"a": 1}), broken, metric="log-loss")
    assert compare(run({"a": 1}), broken).wins == 1


@pytest.mark.parametrize("metric", ["P@1", "P@10", "MRR", "log-loss"])
def test_the_same_run_twice(metric):
    comparison = compare(A, A, metric=metric)
    assert comparison.micro.p == comparison.macro.p == comparison.sign_p == 1
    # No fact of n was answered otherwise: up to Wilson's share of them may be, in either direction.
    share = 100 * stats.binomtest(0, len(A)).proportion_ci(0.95, method="wilson").high
    expected = (None, None) if metric == "log-loss" else pytest.approx((-share, share))
    assert comparison.micro.difference == 0
    assert (comparison.micro.low, comparison.micro.high) == expected
    assert comparison.changed == ()


def test_micro_and_macro():
    # Relation r: A wins 3 of 3. Relation s: B wins 1 of 1.
    a = run({"1": 1, "2": 1, "3": 1}) + run({"4": 2}, "s")
    b = run({"1": 2, "2": 2, "3": 2}) + run({"4": 1}, "s")
    comparison = compare(a, b)
    assert (comparison.micro.a, comparison.micro.b) == (75, 25)
    assert (comparison.macro.a, comparison.macro.b) == (50, 50)
    # Macro: three parts of 1/3 against one of 1; every flip is at least as far from 0 as their sum of 0.
    assert comparison.macro.p == 1
    # Micro: |sum| of four ones is 2 or more in 10 of 16 flips.
    assert comparison.micro.p == 10 / 16
    assert comparison.relations["r"].wins == 3
    assert (comparison.relations["s"].losses, comparison.relations["s"].difference) == (1, -100)


def test_a_macro_average_against_enumeration():
    a = run({"1": 1, "2": 1, "3": 1, "4": 2, "5": 3}) + run({"6": 1, "7": 1, "8": 9}, "s")
    b = run({"1": 2, "2": 4, "3": 1, "4": 1, "5": 1}) + run({"6": 3, "7": 5, "8": 2}, "s")
    weights = [1 / 5, 1 / 5, 0, 1 / 5, 1 / 5, 1 / 3, 1 / 3, 0]  # of the facts' parts in the mean of two means, times 2
    observed = 1 / 5 + 1 / 5 - 1 / 5 - 1 / 5 + 1 / 3 + 1 / 3
    sums = [
        abs(sum(sign * weight for sign, weight in zip(signs, weights, strict=True)))
        for signs in itertools.product((1, -1), repeat=8)
    ]
    expected = sum(s >= observed - 1e-9 for s in sums) / 2**8
    assert compare(a, b).macro.p == pytest.approx(expected)


def test_seeds_are_paired():
    a = {1: run({"p": 1, "q": 1}), 2: run({"p": 1, "q": 2}), 7: run({"p": 1})}
    b = {1: run({"p": 2, "q": 1}), 2: run({"p": 2, "q": 1}), 3: run({"q": 1})}
    comparison = compare(a, b)
    assert comparison.seeds == (1, 2)
    assert (comparison.facts, comparison.only_a, comparison.only_b) == (4, 1, 1)
    # p is better by 1 in both seeds, q worse by 1 in one: units of 2 and -1.
    assert comparison.micro.difference == 25
    assert (comparison.wins, comparison.losses) == (1, 1)
    assert comparison.micro.p == 1  # |±2 ±1| is 1 or more always
    p = next(fact for fact in comparison.changed if fact.x == "p")
    assert (p.a, p.b) == (100, 0)


def test_the_order_of_seeds_is_no_difference():
    ranks = (1, 2, 6)
    orders = list(itertools.permutations(ranks))
    assert len({1 / p + 1 / q + 1 / r for p, q, r in orders}) > 1  # sums that differ in their last bits
    for order in orders:
        a, b = ({seed: run({"p": rank}) for seed, rank in enumerate(of_run)} for of_run in (ranks, order))
        comparison = compare(a, b, metric="MRR", resamples=9)
        assert (comparison.wins, comparison.losses, comparison.changed, comparison.micro.p) == (0, 0, (), 1)


def test_seeds_of_one_fact_are_no_independent_evidence():
    one = compare(run(dict.fromkeys("abcdef", 1)), run(dict.fromkeys("abcdef", 2)))
    seeds = range(5)
    five = compare(
        {s: run(dict.fromkeys("abcdef", 1)) for s in seeds}, {s: run(dict.fromkeys("abcdef", 2)) for s in seeds}
    )
    assert five.facts == 30
    assert five.micro.p == one.micro.p == pytest.approx(2 / 64)


def test_a_side_without_seeds_stands_beside_each():
    comparison = compare({1: run({"p": 1}), 2: run({"p": 1})}, run({"p": 2}))
    assert (comparison.facts, comparison.seeds, comparison.micro.difference) == (2, (1, 2), 100)
    with pytest.raises(UsageError, match="A has 1, B has 2"):
        compare({1: run({"p": 1})}, {2: run({"p": 1})})


def test_repeated_facts_are_asked_as_often_as_both_have_them():
    comparison = compare(run({"p": 1}) * 3, run({"p": 2}) * 2)
    assert (comparison.facts, comparison.only_a, comparison.only_b) == (2, 1, 0)
    assert (comparison.wins, comparison.micro.p) == (1, 1)  # one fact, one sign


def test_facts_of_one_y_as_one_unit():
    # A run that always answers "big" beats one that always answers "small" on every fact of big.
    facts = [(f"x{n}", "big") for n in range(20)] + [(f"z{n}", "small") for n in range(4)]
    a = [outcome(x, y, 1 if y == "big" else 2) for x, y in facts]
    b = [outcome(x, y, 2 if y == "big" else 1) for x, y in facts]
    by_fact, by_y = compare(a, b), compare(a, b, unit="y")
    assert by_fact.micro.p == pytest.approx(stats.binomtest(20, 24).pvalue)
    assert by_y.micro.p == 1  # |±20 ±4| is 16 or more always
    assert (by_y.wins, by_y.losses, by_y.facts) == (1, 1, 24)
    assert interval(by_y.micro)[0] < 0 < interval(by_fact.micro)[0]
    assert compare(a, b, unit="x").micro == by_fact.micro  # each x has one y here


def test_the_order_of_rows_changes_nothing():
    a, b = run({str(n): 1 + n % 7 for n in range(60)}), run({str(n): 1 + n % 5 for n in range(60)})
    forth = compare(a, b, metric="MRR")
    assert compare(a[::-1], b[5:] + b[:5], metric="MRR") == forth
    assert not forth.micro.exact


def test_nothing_in_common():
    with pytest.raises(UsageError, match="no fact in common: A has 1 facts of r, B 1 of s"):
        compare(run({"p": 1}), run({"p": 1}, "s"))
    with pytest.raises(UsageError, match="B 0 of no relation"):
        compare(run({"p": 1}), [])
