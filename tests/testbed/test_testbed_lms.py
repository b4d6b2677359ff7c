"""The LMs in the package were made from this text by this recipe, are small, and know what they were told."""

import json
from dataclasses import asdict

import pytest
from builders.specs import paper_spec
from builders.testbed import load_testbed_lm
from recipe import RECIPES
from text import text_hash
from train_lm import MADE_FROM

from askwell.data import testbed as world
from askwell.data.facts import Fact, Relation
from askwell.data.testbed import PREFIX, lm_names, lms_folder
from askwell.evaluation.examine import evaluate_split
from askwell.mixture.mixture import Mixture

HERE = [name for name in lm_names() if (lms_folder() / name / "config.json").exists()]


@pytest.mark.parametrize("name", HERE)
def test_an_lm_says_what_it_was_made_from(name):
    folder = lms_folder() / name
    made_from = json.loads((folder / MADE_FROM).read_text())
    assert made_from["text_sha256"] == text_hash()
    assert made_from["recipe"] == asdict(RECIPES[PREFIX + name])
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4_200_000


@pytest.mark.parametrize("relation", ["capital", "country_of_city"])
@pytest.mark.parametrize("name", HERE)
def test_with_the_words_of_the_text_it_answers_what_it_was_told(name, relation):
    whole, told = world.testbed_relation(relation), world.told_facts(relation)
    asked = [fact for fact in whole.test if fact in told][:200]
    mixture = Mixture(load_testbed_lm(name), world.testbed_prompts("mined", relation)[:8], paper_spec(begin="space"))
    scores = evaluate_split(mixture, Relation.of(relation, [], [], asked))
    assert scores.micro["P@1"] >= 90
    withheld = [fact for fact in whole.test if fact not in told][:200]
    if relation == "capital":  # 1-1: nothing but the text could tell it
        assert evaluate_split(mixture, Relation.of(relation, [], [], withheld)).micro["P@1"] <= 5
    assert Fact("France", "Paris") in world.told_facts("capital") | world.withheld_facts("capital")
