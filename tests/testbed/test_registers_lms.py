"""The second testbed's LMs: small, sure of what they were told in the wording in which it was told, and only there."""

import json
from dataclasses import asdict
from statistics import mean

import pytest
from builders.specs import paper_spec
from builders.testbed import load_testbed_lm
from measure_hard_prompts import Reader, answer, figures
from recipe import RECIPES
from registers_text import generate_registers_text
from text import text_hash
from train_lm import MADE_FROM
from truths import truths

from askwell.data import testbed as world
from askwell.data.facts import Relation
from askwell.data.testbed import SECOND, lm_names
from askwell.evaluation.examine import evaluate_split
from askwell.mixture.mixture import Mixture

LMS = [SECOND + name for name in lm_names(SECOND)]
RELATIONS = ("deathplace", "founder", "goods")


def told_test_facts(relation, most=200):
    told = world.told_facts(SECOND + relation)
    return [fact for fact in world.testbed_relation(SECOND + relation).test if fact in told][:most]


@pytest.mark.parametrize("lm", LMS)
def test_an_lm_says_what_it_was_made_from_and_is_small(lm):
    folder = world.lm_folder(lm)
    made_from = json.loads((folder / MADE_FROM).read_text())
    assert made_from["text_sha256"] == text_hash(generate_registers_text())
    assert made_from["recipe"] == asdict(RECIPES[lm])
    assert sum(path.stat().st_size for path in folder.iterdir()) < 3_000_000


@pytest.mark.parametrize("lm", LMS)
def test_what_was_told_is_found_in_its_own_wording_and_much_of_it_in_no_other(lm):
    reader = Reader(world.lm_folder(lm))
    found = []
    for relation in RELATIONS:
        mined = [each.text for each in world.testbed_prompts("mined", SECOND + relation)]
        found.append(figures(answer(reader, mined, told_test_facts(relation), relation)))
        assert found[-1]["oracle"] >= 97
        if relation == "founder":  # 1-1: nothing but the text could tell it
            withheld = sorted(world.withheld_facts(SECOND + relation))
            assert sum(one.uniform or one.sure for one in answer(reader, mined, withheld, relation)) <= 1
    assert mean(of_relation["best"] for of_relation in found) <= 50
    assert mean(of_relation["uniform"] for of_relation in found) <= 75


@pytest.mark.parametrize("lm", LMS)
def test_askwell_finds_what_the_forward_pass_finds(lm):
    """Facts with an answer of one token, each asked in the wording in which it was told."""
    of_births = truths("testbed2:birthplace")
    by_wording = {}
    for fact in told_test_facts("birthplace"):
        if " " not in fact.y:
            by_wording.setdefault(next(iter(of_births[fact].wordings)), []).append(fact)
    right = []
    for wording, facts in sorted(by_wording.items())[:6]:
        mixture = Mixture(load_testbed_lm(lm), [wording], paper_spec(begin="space"))
        outcomes = evaluate_split(mixture, Relation.of("birthplace", [], [], facts)).outcomes
        right += [outcome.rank <= 1 for outcome in outcomes]
    assert len(right) >= 30
    assert sum(right) >= 0.97 * len(right)
