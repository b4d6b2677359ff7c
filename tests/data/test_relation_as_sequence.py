"""A relation has a length, facts by number and by split, and is a frame."""

import pandas as pd
import pytest

from askwell.data.facts import Fact
from askwell.data.names import load_relation

PAIRS = {"train": [("b", "2"), ("a", "1")], "dev": [("c", "3")], "test": [("d", "4")]}


def test_a_relation_is_a_sequence_of_facts():
    relation = load_relation(PAIRS)
    facts = [Fact("a", "1"), Fact("b", "2"), Fact("c", "3"), Fact("d", "4")]  # train, dev, test, each sorted
    assert len(relation) == 4
    assert list(relation) == facts
    assert (relation[0], relation[-1], relation[1:3]) == (facts[0], facts[3], (facts[1], facts[2]))
    assert relation["dev"] == (facts[2],)
    assert ("d", "4") in relation
    assert facts[0] in relation
    assert ("d", "1") not in relation
    assert "d" not in relation
    for number in (4, -5):
        with pytest.raises(IndexError, match=f"there is no fact {number}: .* has 4 facts, counted from 0"):
            relation[number]


def test_a_relation_is_a_frame_and_a_frame_names_its_relation():
    frame = load_relation(PAIRS).to_pandas()
    assert frame.to_dict("list") == {"split": ["train"] * 2 + ["dev", "test"], "x": [*"abcd"], "y": [*"1234"]}
    countries = pd.DataFrame({"country": [*"abcdefghij"], "capital": [*"0123456789"]})
    assert load_relation(countries, x="country", y="capital").name == "capital"
    assert load_relation(countries, x="country", y="capital", name="capitals").name == "capitals"
