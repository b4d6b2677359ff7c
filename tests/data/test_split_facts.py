from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askwell.data.facts import Fact
from askwell.data.split import split_facts
from askwell.errors import BadOption, UsageError


def one_y_each(n: int) -> list[Fact]:
    return [Fact(f"x{i:05}", f"y{i:05}") for i in range(n)]


def groups_of_y(*sizes: int) -> list[Fact]:
    return [Fact(f"x{group}-{i}", f"y{group}") for group, size in enumerate(sizes) for i in range(size)]


def groups_of_x(*sizes: int) -> list[Fact]:
    return [Fact(f"x{group}", f"y{group}-{i}") for group, size in enumerate(sizes) for i in range(size)]


def sizes(splits) -> tuple[int, ...]:
    return tuple(len(split) for split in splits)


@pytest.mark.parametrize("rule", ["random", "distinct-y"])
@pytest.mark.parametrize(
    ("n", "expected"),
    [(10, (8, 1, 1)), (50, (40, 5, 5)), (1000, (800, 100, 100)), (3, (1, 1, 1)), (4, (2, 1, 1)), (19, (15, 2, 2))],
)
def test_sizes_when_all_groups_hold_one_fact(rule, n, expected):
    assert sizes(split_facts(one_y_each(n), rule, 0)) == expected


@pytest.mark.parametrize("seed", range(5))
def test_sizes_are_exact_when_small_groups_can_make_up_for_large_ones(seed):
    facts = groups_of_x(30, 13, 7, *[1] * 50)
    assert sizes(split_facts(facts, "random", seed)) == (80, 10, 10)


@pytest.mark.parametrize("seed", range(5))
def test_a_dominant_y_goes_to_train(seed):
    train, dev, test = split_facts(groups_of_y(70, *[2] * 15), "distinct-y", seed)
    assert (len(train), len(dev), len(test)) == (80, 10, 10)
    assert sum(fact.y == "y0" for fact in train) == 70


@pytest.mark.parametrize("seed", range(5))
def test_no_set_is_empty_even_if_that_is_far_from_80_10_10(seed):
    assert sizes(split_facts(groups_of_y(6, 2, 2), "distinct-y", seed)) == (6, 2, 2)
    assert sizes(split_facts(groups_of_y(20, 20, 20), "distinct-y", seed)) == (20, 20, 20)


def test_every_fact_lands_in_one_set_and_sets_are_sorted():
    facts = one_y_each(40)
    splits = split_facts(facts[::-1], "random", 3)
    assert sorted(fact for split in splits for fact in split) == facts
    assert all(list(split) == sorted(split) for split in splits)


@pytest.mark.parametrize("rule", ["random", "distinct-y"])
def test_repeated_facts_are_removed(rule):
    facts = one_y_each(10)
    assert split_facts(facts * 3, rule, 1) == split_facts(facts, rule, 1)


@pytest.mark.parametrize("rule", ["random", "distinct-y"])
def test_seeds_give_different_splits_negative_ones_too(rule):
    facts = one_y_each(100)
    assert len({split_facts(facts, rule, seed) for seed in (-2, -1, 0, 1, 2)}) == 5


def test_random_puts_each_fact_into_test_about_equally_often():
    facts = one_y_each(20)
    times = Counter(fact for seed in range(500) for fact in split_facts(facts, "random", seed)[2])
    # Binomial with 500 draws of 1/10: mean 50, standard deviation 6.7. Seeds are fixed, so this cannot flicker.
    assert all(20 < times[fact] < 80 for fact in facts)


@pytest.mark.parametrize(
    ("rule", "facts"),
    [
        ("random", []),
        ("random", one_y_each(2)),
        ("random", one_y_each(2) * 4),
        ("random", groups_of_x(50, 50)),
        ("distinct-y", groups_of_y(50, 50)),
    ],
)
def test_fewer_than_three_groups_is_a_mistake(rule, facts):
    kept_together = "x" if rule == "random" else "y"
    found = len({getattr(fact, kept_together) for fact in facts})
    with pytest.raises(UsageError, match=rf"at least 3 distinct {kept_together} .* there are {found}$"):
        split_facts(facts, rule, 0)


def test_unknown_rule_lists_the_known_ones():
    with pytest.raises(BadOption, match=r"'distinct_y'.*random, distinct-y"):
        split_facts(one_y_each(10), "distinct_y", 0)


FACTS = st.lists(st.sampled_from([Fact(x, y) for x in "abcdefghij" for y in "0123456789"]), max_size=60)


def distance(train: int, dev: int, test: int) -> tuple[bool, int]:
    n = train + dev + test
    return 0 in (train, dev, test), abs(10 * train - 8 * n) + abs(10 * dev - n) + abs(10 * test - n)


@given(FACTS, st.sampled_from(["random", "distinct-y"]), st.integers(), st.randoms())
def test_a_split_keeps_every_fact_once_and_no_x_or_y_in_two_splits(facts, rule, seed, shuffler):
    key = (lambda fact: fact.x) if rule == "random" else (lambda fact: fact.y)
    if len({key(fact) for fact in facts}) < 3:
        with pytest.raises(UsageError):
            split_facts(facts, rule, seed)
        return
    splits = split_facts(facts, rule, seed)
    assert sorted(fact for split in splits for fact in split) == sorted(set(facts))
    assert all(splits)
    for one, other in permutations(splits, 2):
        assert not {key(fact) for fact in one} & {key(fact) for fact in other}

    shuffled = facts.copy()
    shuffler.shuffle(shuffled)
    assert split_facts(shuffled, rule, seed) == splits

    # Moving any one group, or swapping any two, brings the sizes no nearer to 80-10-10.
    reached = distance(*sizes(splits))
    groups = [Counter(map(key, split)) for split in splits]
    for source, target in permutations(range(3), 2):
        for given_size in groups[source].values():
            for back in [0, *groups[target].values()]:
                changed = list(sizes(splits))
                changed[source] += back - given_size
                changed[target] += given_size - back
                assert distance(*changed) >= reached


@pytest.mark.parametrize("rule", ["random", "distinct-y", "stratified", "random 3-1-2"])
def test_each_fact_is_in_one_of_the_folds(rule):
    facts = groups_of_x(3, 2, *[1] * 18)
    folds = [split_facts(facts, f"{rule} fold {number}/5", 0) for number in range(1, 6)]
    assert sorted(fact for _, _, test in folds for fact in test) == sorted(facts)
    for train, dev, test in folds:
        assert sorted((*train, *dev, *test)) == sorted(facts)
        assert 4 <= len(test) <= (6 if rule == "stratified" else 5)  # strata are dealt by x, of which one has three
        assert dev
        if rule == "random":  # of 18 or 19 facts, one in nine
            assert len(dev) == 2
        if rule != "distinct-y":
            assert {fact.x for fact in test}.isdisjoint(fact.x for fact in (*train, *dev))
    assert split_facts(facts[::-1], f"{rule} fold 2/5", 0) == folds[1]


def test_folds_that_facts_do_not_fill():
    with pytest.raises(UsageError, match="5 folds takes at least 5 distinct x"):
        split_facts(one_y_each(4), "random fold 1/5", 0)
    with pytest.raises(BadOption, match="at least two folds"):
        split_facts(one_y_each(4), "random fold 1/1", 0)
