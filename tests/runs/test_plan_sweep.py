"""What a sweep expands to, counted by hand."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from builders import tiny
from builders.worlds import CAPITALS, PAIRS, TEMPLATES

from askwell.data.facts import Fact, Relation
from askwell.data.split import sample
from askwell.runs.plan import plan_sweep
from askwell.runs.store import new_or_open_store
from askwell.runs.worker import lm_of
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.run_spec import PromptText, RunSpec, read_sweep
from askwell.specs.training_spec import TrainingSpec


def plan_of(path: Path):
    sweep = read_sweep(path)
    assert sweep.store is not None
    return plan_sweep(sweep, path, new_or_open_store(Path(sweep.store)))


def specs_of(path: Path) -> list[RunSpec]:
    return [task.spec for task in plan_of(path).runs]


def a_run(**changed) -> RunSpec:
    fields: dict[str, Any] = {
        "lm": "bert", "lm_sha256": "1", "relation": "r", "facts_sha256": "2", "prompts": "hand",
        "templates": (PromptText(template="[X] é [Y]"),), "setting": "soft",
        "mixture": MixtureSpec(seed=3, answers="one-token", begin="space"),
        "training": TrainingSpec(epochs=1),
    }  # fmt: skip
    return RunSpec(**(fields | changed))


def test_a_run_is_named_by_the_hash_of_its_sorted_json():
    run = a_run(training=None)
    text = json.dumps(json.loads(run.model_dump_json()), sort_keys=True, ensure_ascii=False)
    assert text.startswith('{"baseline": null, "candidates": null, "candidates_sha256": null, "control": null, ')
    assert text.endswith('"templates": [{"template": "[X] é [Y]", "weight": null}], "threads": 1, "training": null}')
    assert run.id == hashlib.sha256(text.encode()).hexdigest()
    assert RunSpec.model_validate_json(run.model_dump_json()).id == run.id


@pytest.mark.parametrize(
    "changed",
    [
        {"mixture": MixtureSpec(seed=4, answers="one-token", begin="space")},
        {"mixture": MixtureSpec(seed=3, answers="one-token", begin="line-break")},
        {"mixture": MixtureSpec(seed=3, answers="one-token")},
        {"mixture": MixtureSpec(seed=3, begin="space")},
        {"mixture": MixtureSpec(seed=3, answers="any-length", begin="space")},
        {"threads": 2},
        {"device": "cuda"},
        {"dtype": "float64"},
        {"lm_sha256": "x"},
        {"facts_sha256": "x"},
        {"templates": (PromptText(template="[X] [Y]"),)},
        {"training": None},
        {"training": TrainingSpec(epochs=2)},
        {"candidates": "common", "candidates_sha256": "x"},
        {"setting": "other"},
    ],
)
def test_whatever_changes_the_numbers_or_the_labels_makes_another_run(changed):
    assert a_run(**changed).id != a_run().id


def test_what_sentences_begin_with_is_chosen_when_the_runs_are_done(write_sweep):
    settings = {"soft": {"epochs": 2}, "eos": {"begin": "eos", "epochs": 2}}
    path = write_sweep(settings=settings)
    specs = specs_of(path)
    # A setting's own choice is for causal LMs; bert has none.
    begins = {(spec.lm, spec.setting, spec.mixture.begin) for spec in specs}
    assert begins == {
        ("bert", "soft", "space"), ("bert", "eos", "space"), ("llama", "soft", "auto"), ("llama", "eos", "eos"),
    }  # fmt: skip
    assert [spec.id for spec in specs_of(path)] == [spec.id for spec in specs]


def test_an_lm_can_have_a_tokenizer_of_its_own(write_sweep, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vocabulary = tiny.TINY["bert"]()[1].get_vocab()
    (tmp_path / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)))
    lm = {"source": str(world.folder / "bert"), "tokenizer": "vocab.txt"}
    tasks = plan_of(write_sweep(lms=[lm])).runs
    assert {task.lm.tokenizer for task in tasks} == {str(tmp_path / "vocab.txt")}
    assert lm_of(tasks[0]).identity.digest == tasks[0].spec.lm_sha256


def test_the_grid_is_every_combination_in_the_order_of_lms(write_sweep):
    specs = specs_of(write_sweep(seeds=[0, 5]))
    # 2 LMs × 2 relations × 2 prompts × 2 settings × 2 seeds; bert and llama can both use all templates.
    assert len(specs) == 32
    assert len({spec.id for spec in specs}) == 32
    assert [spec.lm for spec in specs] == ["bert"] * 16 + ["llama"] * 16
    assert Counter(spec.relation for spec in specs) == {"places/capital": 16, "places/other": 16}
    assert {spec.seed for spec in specs} == {0, 5}
    assert {(spec.setting, spec.training) for spec in specs} == {("init", None), ("soft", TrainingSpec(epochs=2))}
    many = next(spec for spec in specs if spec.prompts == "many")
    assert [prompt.template for prompt in many.templates] == TEMPLATES


def test_settings_can_have_prompts_and_seeds_of_their_own(write_sweep, world):
    settings = {
        "init": {"tuned": False, "seeds": [0]},
        "deep": {"deep": True, "prompts": ["many"], "pairs": 100},
        "em": {"method": "em", "tune_vectors": False, "seeds": [7, 8, 9], "prompts": ["hand"]},
    }
    specs = specs_of(write_sweep(lms=[str(world.folder / "bert")], seeds=[0, 1], settings=settings))
    # 2 relations × (init: 2 prompts × 1 seed; deep: 1 × 2; em: 1 × 3)
    assert Counter(spec.setting for spec in specs) == {"init": 4, "deep": 4, "em": 6}
    deep = next(spec for spec in specs if spec.setting == "deep")
    assert (deep.mixture.deep, deep.training) == (True, TrainingSpec(pairs=100))
    em = next(spec for spec in specs if spec.setting == "em")
    assert em.training == TrainingSpec(method="em", tune_vectors=False)


def test_punctuation_can_be_joined_to_its_word(write_sweep):
    prompts = {"hand": ["[X] is in [Y] .", "[X] is in [Y]."]}
    as_written, joined = (
        specs_of(write_sweep(prompts=prompts, joined_punctuation=is_joined)) for is_joined in (False, True)
    )
    assert {tuple(one.template for one in spec.templates) for spec in as_written} == {tuple(prompts["hand"])}
    assert {tuple(one.template for one in spec.templates) for spec in joined} == {("[X] is in [Y].",)}


def test_what_is_named_twice_is_done_once(write_sweep, world):
    lms = [str(world.folder / "bert"), f"{world.folder}/./bert"]
    specs = specs_of(write_sweep(lms=lms, facts=["places", "places/other"]))
    assert len(specs) == 8


def test_prompts_that_an_lm_cannot_use_are_left_out_and_named(write_sweep):
    plan = plan_of(write_sweep(prompts={"hand": ["hand"], "y first": ["[Y] holds [X]"]}))
    # llama is causal: of its 2 relations × 2 prompts × 2 settings half are left out.
    assert Counter(task.spec.lm for task in plan.runs) == {"bert": 8, "llama": 4}
    assert len(plan.without) == 2
    assert all("llama cannot use the y first prompts" in line for line in plan.without)


def test_a_relation_without_prompts_of_one_name_is_left_out_there(write_sweep, world, tmp_path):
    for name in ("capital", "third"):
        source = world.data / "facts" / "places" / "capital"
        folder = tmp_path / "more" / name
        folder.mkdir(parents=True)
        for path in source.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
    path = write_sweep(facts=[str(tmp_path / "more")], prompts={"hand": ["hand"], "all": ["[X] in [Y]"]})
    plan = plan_of(path)
    # capital has hand and all, third only all; 2 LMs × 2 settings each
    assert Counter((task.spec.relation, task.spec.prompts) for task in plan.runs) == {
        ("capital", "hand"): 4, ("capital", "all"): 4, ("third", "all"): 4,
    }  # fmt: skip
    assert plan.without == ("third has no hand prompts: there is no third.jsonl in hand",)


def test_the_whole_testbed_is_thirteen_relations(write_sweep):
    from askwell.runs.plan import cells_of

    path = write_sweep(facts=["testbed"], prompts={"single": ["testbed:single"]}, test_facts=5)
    cells, _ = cells_of(read_sweep(path), path, None)
    assert len(cells) == 13
    assert all(len(cell.relation.test) == 5 for cell in cells)


def test_a_plan_says_how_long_the_runs_will_take(write_sweep):
    plan = plan_of(write_sweep())
    assert set(plan.seconds) == {task.spec.id for task in plan.runs}
    init = [plan.seconds[task.spec.id] for task in plan.runs if task.spec.setting == "init"]
    soft = [plan.seconds[task.spec.id] for task in plan.runs if task.spec.setting == "soft"]
    assert 0 < max(init) < sum(soft)
    one, two = plan.estimate(1), plan.estimate(2)
    assert one is not None
    assert two is not None
    assert one == pytest.approx(sum(plan.seconds.values()))
    assert two == pytest.approx(max(max(soft), one / 2))


def test_a_moved_lm_is_the_same_run_and_a_changed_file_another(write_sweep, world, tmp_path):
    moved = tmp_path / "elsewhere" / "bert"
    moved.parent.mkdir()
    moved.symlink_to(world.folder / "bert")
    one = {spec.id for spec in specs_of(write_sweep(lms=[str(world.folder / "bert")]))}
    assert {spec.id for spec in specs_of(write_sweep(lms=[str(moved)]))} == one
    assert not one & {spec.id for spec in specs_of(write_sweep(lms=[str(moved)], test_facts=2))}


FACTS = [Fact(x, y) for x, y in PAIRS]


def test_a_sample_keeps_splits_and_golds_and_grows_by_adding():
    whole = Relation.of("r", FACTS, [*FACTS[:3], Fact("Paris", "Peru")], FACTS[::-1])
    small = sample(whole, train=3, dev=None, test=4, seed=1)
    larger = sample(whole, train=5, dev=2, test=100, seed=1)
    assert (len(small.train), len(small.dev), len(small.test)) == (3, 4, 4)
    assert (len(larger.train), len(larger.dev), len(larger.test)) == (5, 2, 10)
    assert set(small.train) < set(larger.train) < set(whole.train)
    assert small.golds == whole.golds
    assert whole.golds["Paris"] == ("France", "Peru")
    assert len({sample(whole, train=3, dev=None, test=4, seed=seed).train for seed in range(9)}) > 1
    assert len({small.digest, larger.digest, whole.digest}) == 3
    assert sample(whole, train=3, dev=None, test=4, seed=1).digest == small.digest


def test_a_sample_of_everything_is_the_relation_itself():
    assert sample(CAPITALS, train=None, dev=99, test=1, seed=0) is CAPITALS


def test_the_hash_of_a_sample_depends_on_golds_that_were_not_drawn():
    one = Relation.of("r", [Fact("Paris", "France")], [], [Fact("Rome", "Italy"), Fact("Rome", "Peru")])
    other = Relation.of("r", [Fact("Paris", "France")], [], [Fact("Rome", "Italy"), Fact("Rome", "Spain")])
    drawn = [
        next(s for seed in range(50) if (s := sample(r, train=None, dev=None, test=1, seed=seed)).test[0].y == "Italy")
        for r in (one, other)
    ]
    assert drawn[0].test == drawn[1].test
    assert drawn[0].digest != drawn[1].digest
