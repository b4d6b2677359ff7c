"""What the demo runs, and what it refuses before any work."""

import pytest

from askwell.data import testbed as world
from askwell.demo.results import DEV_FACTS, MANUAL, METHODS, MIXTURE, RELATIONS, TEST_FACTS, Run, plan_demo, sampled
from askwell.errors import BadOption

LM = {"name": "testbed:bert", "tensors_sha256": "0"}


def plan(*relations: str, lm: str = "testbed:bert", seed: int = 0, quick: bool = False):
    return plan_demo(lm, list(relations) or None, seed=seed, quick=quick)


def test_every_relation_is_asked_in_every_way():
    runs = plan("symbol", "testbed:capital").runs
    assert [(run.relation, run.method) for run in runs] == [
        (relation, method) for relation in ("symbol", "capital") for method in METHODS
    ]


def test_the_relations_of_its_own_are_of_each_cardinality():
    kinds = {relation.cardinality for relation in world.relations() if relation.name in RELATIONS}
    assert kinds == {"1-1", "N-1", "N-M"}
    assert plan().relations == RELATIONS
    assert len(plan(quick=True).relations) == 1


def test_the_mixture_begins_with_the_manual_and_the_paraphrased_prompts():
    texts = [template.text for template in Run("capital", MIXTURE, 0).templates]
    assert texts == [
        template.text for kind in ("single", "paraphrased") for template in world.testbed_prompts(kind, "capital")
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lm": "bert-base-cased"}, "needs one of the testbed's LMs, e.g. testbed:bert"),
        ({"relations": ["captial"]}, "did you mean capital"),
        ({"relations": ["capital", "testbed:capital"]}, "--relations names capital twice"),
        ({"relations": ["capital"], "quick": True}, "leave out --quick or --relations"),
        ({"seed": -1}, "--seed -1"),
    ],
)
def test_what_cannot_be_is_refused(arguments, message):
    options = {"lm": "testbed:bert", "relations": None, "seed": 0, "quick": False} | arguments
    with pytest.raises(BadOption, match=message):
        plan_demo(options.pop("lm"), options.pop("relations"), **options)


def test_a_folder_is_named_by_all_that_decides_what_comes_out():
    run = Run("symbol", MIXTURE, 0)
    name = run.folder_name(LM)
    assert name.startswith("symbol-soft-mixture-")
    assert name == Run("symbol", MIXTURE, 0).folder_name(dict(LM))
    others = [Run("symbol", MIXTURE, 1), Run("symbol", MANUAL, 0), Run("capital", MIXTURE, 0)]
    names = {name, run.folder_name(LM | {"tensors_sha256": "1"}), *(other.folder_name(LM) for other in others)}
    assert len({name.rpartition("-")[2] for name in names}) == 5


def test_large_relations_are_sampled_by_the_seed():
    whole = world.testbed_relation("country_of_city")
    first, again, other = (sampled(whole, seed) for seed in (0, 0, 1))
    assert (len(first.dev), len(first.test), first.train) == (DEV_FACTS, TEST_FACTS, whole.train)
    assert set(first.dev) <= set(whole.dev)
    assert set(first.test) <= set(whole.test)
    assert first == again
    assert first.test != other.test


def test_relations_with_several_golds_keep_all_facts():
    whole = world.testbed_relation("neighbour")
    assert len(whole.dev) > DEV_FACTS
    assert sampled(whole, 0) == whole
