"""Tuned prompts elicit from the testbed's LMs what they were told, and nothing else.

The whole table is made by studies/elicitation.py; this is a smaller setting of it.
"""

import functools
import os

import pytest
from builders.specs import paper_spec
from builders.testbed import load_testbed_lm

from askwell.data import testbed as world
from askwell.data.facts import Fact, Relation
from askwell.data.testbed import lm_names
from askwell.evaluation.comparison import compare
from askwell.evaluation.examine import evaluate_split
from askwell.mixture.mixture import Mixture
from askwell.specs.training_spec import TrainingSpec
from askwell.training.loop import train

FULL = bool(os.environ.get("ASKWELL_TEST_FULL"))
RELATIONS = ("capital", "country_of_airport", "state_of_county") if FULL else ("capital", "country_of_airport")
PAIRS = 2000 if FULL else 800
ABSENT = ("single", "paraphrased")
STARTS = {
    "manual and paraphrased": (ABSENT, paper_spec()),
    "deep": (ABSENT, paper_spec(deep=True)),
    "mined": (("mined",), paper_spec()),
    "random words": (("random",), paper_spec()),
    "random vectors": (ABSENT, paper_spec(initial="random")),
}


def templates(kinds, name):
    return [template for kind in kinds for template in world.testbed_prompts(kind, name)][:12]


def told_facts(name):
    """The relation with at most 80 of its told test facts."""
    whole, told = world.testbed_relation(name), world.told_facts(name)
    asked = [fact for fact in whole.test if fact in told][:80]
    return Relation.of(whole.name, whole.train, whole.dev[:40], asked)


@functools.cache
def asked_hard(lm_name):
    """What the hard prompts that are not in an LM's text make of told facts."""
    return [
        outcome
        for name in RELATIONS
        for outcome in evaluate_split(
            Mixture(load_testbed_lm(lm_name), templates(ABSENT, name), paper_spec()), told_facts(name)
        ).outcomes
    ]


@functools.cache
def tuned(lm_name, start, name):
    kinds, spec = STARTS[start]
    mixture = Mixture(load_testbed_lm(lm_name), templates(kinds, name), spec)
    train(mixture, told_facts(name), TrainingSpec(pairs=PAIRS, threads=1))
    return mixture


ALL_CASES = [(name, start) for name in lm_names() for start in STARTS]
# Each LM, and each start.
SOME_CASES = [(name, start) for name, start in ALL_CASES if name == "bert" or start == "manual and paraphrased"]


@pytest.mark.slow
@pytest.mark.parametrize(("lm_name", "start"), ALL_CASES if FULL else SOME_CASES)
def test_tuned_mixtures_beat_hard_prompts_that_are_not_in_the_text(lm_name, start):
    soft = [
        outcome
        for name in RELATIONS
        for outcome in evaluate_split(tuned(lm_name, start, name), told_facts(name)).outcomes
    ]
    compared = compare(soft, asked_hard(lm_name))
    if compared.micro.b >= 95:
        assert compared.micro.difference >= 0 or compared.micro.p >= 0.02
    else:
        assert compared.micro.difference > 0
        assert compared.micro.p < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("name", lm_names())
def test_no_prompt_brings_out_a_capital_that_was_withheld(name):
    relation, told = world.testbed_relation("capital"), world.told_facts("capital")
    outcomes = evaluate_split(tuned(name, "manual and paraphrased", "capital"), relation).outcomes
    right = {kept: [o.rank <= 1 for o in outcomes if (Fact(o.x, o.y) in told) == kept] for kept in (True, False)}
    assert sum(right[True]) / len(right[True]) > 0.8
    assert sum(right[False]) / len(right[False]) < 0.05
