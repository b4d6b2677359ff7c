"""The facts of the testbed: how many, of which kind, and how they are split."""

import hashlib
import json
from collections import Counter

import pytest

from askwell.data import testbed as world
from askwell.data.facts import Fact
from askwell.data.names import load_relation
from askwell.errors import BadOption

NAMES = world.relation_names()
SPLITS = ("train", "dev", "test")


def all_facts(name: str) -> list[Fact]:
    relation = world.testbed_relation(name)
    return [*relation.train, *relation.dev, *relation.test]


def test_the_world_is_large_enough_for_figures_and_small_enough_to_be_learned():
    assert len(NAMES) >= 10
    assert 8_000 <= sum(relation.facts for relation in world.relations()) <= 10_000
    assert {relation.cardinality for relation in world.relations()} == {"1-1", "N-1", "N-M"}


def test_the_list_of_relations_counts_what_the_files_hold():
    for relation in world.relations():
        facts = all_facts(relation.name)
        assert len(facts) == len(set(facts)) == relation.facts
        assert len(world.told_facts(relation.name)) == relation.told
        assert len(world.withheld_facts(relation.name)) == relation.withheld
        assert relation.name.replace("_", "").isalpha()
        assert relation.name.islower()


@pytest.mark.parametrize("relation", world.relations(), ids=NAMES)
def test_cardinalities_are_true(relation):
    ys_of_x, xs_of_y = Counter(), Counter()
    for fact in all_facts(relation.name):
        ys_of_x[fact.x] += 1
        xs_of_y[fact.y] += 1
    assert (max(ys_of_x.values()) == 1) == (relation.cardinality != "N-M")
    assert (max(xs_of_y.values()) == 1) == (relation.cardinality == "1-1")


@pytest.mark.parametrize("name", NAMES)
def test_splits_are_50_10_40_by_x_and_hold_told_and_withheld_in_the_same_proportion(name):
    relation, told = world.testbed_relation(name), world.told_facts(name)
    xs = {split: {fact.x for fact in relation.split(split)} for split in SPLITS}
    assert sum(map(len, xs.values())) == len(set().union(*xs.values()))
    total = sum(map(len, xs.values()))
    for split, share in zip(SPLITS, (0.5, 0.1, 0.4), strict=True):
        assert abs(len(xs[split]) - share * total) <= 2
        facts = relation.split(split)
        expected = len(told) * len(facts) / len(all_facts(name))
        # One x more or less; an x of an N-M relation can bring several facts.
        assert abs(sum(fact in told for fact in facts) - expected) <= max(2, 0.07 * len(facts))


@pytest.mark.parametrize("relation", world.relations(), ids=NAMES)
def test_the_withheld_share_leaves_enough_of_both(relation):
    share = relation.withheld / relation.facts
    if relation.facts > 700:
        assert 0.15 <= share <= 0.20
    else:
        assert 0.28 <= share <= 0.31


def test_names_are_plain_words_between_single_spaces():
    for name in NAMES:
        for fact in all_facts(name):
            for text in (fact.x, fact.y):
                assert text.isascii()
                assert text == " ".join(text.split())
                assert not set(text) & set('.,:;()[]?!/"')


def test_some_answers_have_several_words_and_most_have_one():
    facts = [fact for name in NAMES for fact in all_facts(name)]
    several = sum(" " in fact.y for fact in facts)
    assert 0.05 < several / len(facts) < 0.25


def test_few_xs_give_their_y_away():
    facts = [fact for name in NAMES for fact in all_facts(name)]
    given = [fact for fact in facts if fact.y.casefold() in fact.x.casefold()]
    assert len(given) < 0.02 * len(facts)  # most are symbols and codes that are the beginning of the name
    as_words = [fact for fact in given if f" {fact.y} " in f" {fact.x} "]
    assert len(as_words) < 10


def test_no_name_is_an_x_of_two_kinds():
    """A city and a county of the same name would be one thing to an LM, and tell of each other."""
    kinds: dict[str, set[str]] = {}
    for relation in world.relations():
        for fact in all_facts(relation.name):
            kinds.setdefault(fact.x.casefold(), set()).add(relation.x_kind)
    assert [x for x, those in kinds.items() if len(those) > 1] == []


def test_neighbours_are_mutual_and_no_capital_is_a_city_with_a_country():
    neighbours = set(all_facts("neighbour"))
    assert {Fact(fact.y, fact.x) for fact in neighbours} == neighbours
    assert {fact.y for fact in all_facts("capital")}.isdisjoint(fact.x for fact in all_facts("country_of_city"))


def test_known_facts_are_right():
    """Written down by hand, not derived: the build must not turn columns around."""
    expected = {
        "capital": ("France", "Paris"),
        "continent": ("Peru", "South America"),
        "country_code": ("Switzerland", "CH"),
        "country_of_airport": ("NBO", "Kenya"),
        "country_of_city": ("Marseille", "France"),
        "country_of_region": ("Saskatchewan", "Canada"),
        "currency": ("Japan", "Yen"),
        "dialling_code": ("Germany", "49"),
        "element_family": ("Neon", "noble gas"),
        "language": ("Belgium", "Dutch"),
        "neighbour": ("Spain", "Portugal"),
        "state_of_county": ("Alachua", "Florida"),
        "symbol": ("Iron", "Fe"),
    }
    assert sorted(expected) == NAMES
    for name, (x, y) in expected.items():
        assert y in world.testbed_relation(name).golds[x]


def test_the_files_can_be_read_as_any_facts():
    assert load_relation(world.FILES / "facts" / "capital").digest == world.testbed_relation("capital").digest


def test_a_relation_is_named_testbed_and_can_be_asked_for_by_both_names():
    assert world.testbed_relation("capital").name == "testbed:capital"
    assert world.testbed_relation("testbed:capital") == world.testbed_relation("capital")
    assert world.told_facts("testbed:capital") == world.told_facts("capital")


def test_unknown_names_are_answered_with_known_ones():
    with pytest.raises(BadOption, match=r"no relation 'captial' in the testbed; did you mean capital"):
        world.testbed_relation("captial")
    with pytest.raises(BadOption, match=r"no relation 'zzz' in the testbed; choose from capital, continent"):
        world.told_facts("zzz")
    with pytest.raises(BadOption, match=r"no 'minned' prompts in the testbed; did you mean mined"):
        world.testbed_prompts("minned", "capital")
    with pytest.raises(BadOption, match="no relation 'zzz'"):
        world.testbed_prompts("mined", "zzz")


def test_the_manifest_knows_every_file_and_its_hash():
    recorded = json.loads((world.FILES / "manifest.json").read_text())["files"]
    found = {path.relative_to(world.FILES).as_posix(): path for path in world.FILES.rglob("*") if path.is_file()}
    found.pop("manifest.json")
    found = {name: path for name, path in found.items() if not name.startswith("lms/")}  # trained, not built
    assert sorted(found) == sorted(recorded)
    for name, path in found.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == recorded[name], name
    assert sum(path.stat().st_size for path in found.values()) < 2_000_000
