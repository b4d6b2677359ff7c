"""Controls in sweeps: which runs there are, on which LMs, and what is stored with every run."""

from collections import Counter
from pathlib import Path

import duckdb
import pytest
from builders.specs import paper_spec
from builders.worlds import TEMPLATES
from pydantic import ValidationError

from askwell import Mixture, TrainingSpec, evaluate, load_lm, load_prompts, load_relation, train
from askwell.errors import BadFile
from askwell.evaluation.examine import examine
from askwell.evaluation.outcomes import read_controls, read_outcomes
from askwell.lms.changed import control_lm
from askwell.runs import worker
from askwell.runs.engines import InProcess, run_plan
from askwell.runs.plan import plan_sweep
from askwell.runs.query import query_runs
from askwell.runs.store import new_or_open_store
from askwell.specs.run_spec import ControlKind, PromptText, RunSpec, Setting, SweepSpec, read_sweep

BOTH: list[ControlKind] = ["random-weights", "random-embeddings"]


def plan_of(path: Path):
    sweep = read_sweep(path)
    assert sweep.store is not None
    store = new_or_open_store(Path(sweep.store))
    return plan_sweep(sweep, path, store), store


def small(world, folder: Path, **changed) -> Path:
    """2 settings on bert with one relation and one prompt."""
    table = {"lms": [str(world.folder / "bert")], "facts": ["places/capital"], "prompts": {"many": ["many"]}}
    return world.write_sweep(folder, **(table | changed))


@pytest.fixture(scope="module")
def done(world, tmp_path_factory):
    """A sweep with both controls and two seeds, done in this process."""
    folder = tmp_path_factory.mktemp("controls")
    plan, store = plan_of(small(world, folder, controls=BOTH, seeds=[0, 4]))
    assert run_plan(plan, InProcess(), store, lambda _event: None) == []
    return plan, store


def test_every_tuned_setting_is_done_on_the_control_lms_too(done):
    plan, store = done
    # init: 2 seeds; soft: 2 seeds × (itself and 2 controls)
    assert Counter((task.spec.setting, task.spec.control) for task in plan.runs) == {
        ("init", None): 2, ("soft", None): 2, ("soft", "random-weights"): 2, ("soft", "random-embeddings"): 2,
    }  # fmt: skip
    assert len({task.spec.id for task in plan.runs}) == 8
    assert store.done() == {task.spec.id for task in plan.runs}
    assert set(plan.seconds) == store.done()  # as planned before anything was done
    soft = {task.spec.control: plan.seconds[task.spec.id] for task in plan.runs if task.spec.setting == "soft"}
    assert soft["random-weights"] == pytest.approx(soft[None])
    # One control LM after the other, so that each is made once.
    asked = [(task.spec.control, task.spec.seed) for task in plan.runs if task.spec.control]
    assert asked == [(kind, seed) for kind in sorted(BOTH) for seed in (0, 4)]


def test_a_run_that_is_no_control_keeps_its_name(done, world, tmp_path):
    plan, _ = done
    without, _ = plan_of(small(world, tmp_path, seeds=[0, 4]))
    assert {task.spec.id for task in without.runs} == {t.spec.id for t in plan.runs if t.spec.control is None}


def test_labels_and_specs():
    run = RunSpec(
        lm="bert", lm_sha256="1", relation="r", facts_sha256="2", prompts="hand", setting="soft",
        templates=(PromptText(template=TEMPLATES[0]),), mixture=paper_spec(seed=3), training=TrainingSpec(),
        control="random-embeddings",
    )  # fmt: skip
    assert run.label == "bert (random embeddings) · r · hand · soft · seed 3"
    with pytest.raises(ValueError, match="so it must be tuned"):
        RunSpec.model_validate(run.model_dump() | {"training": None})


@pytest.mark.parametrize("kind", BOTH)
def test_a_control_equals_the_same_steps_by_hand(done, world, kind):
    plan, store = done
    [task] = [task for task in plan.runs if (task.spec.control, task.spec.seed) == (kind, 4)]
    relation = load_relation("places/capital", data=world.data)
    lm = control_lm(load_lm(world.folder / "bert", device="cpu"), kind, 4)
    mixture = Mixture(lm, load_prompts("many/capital", data=world.data), paper_spec(seed=4))
    train(mixture, relation, TrainingSpec(epochs=2, threads=1))
    folder = store.run_folder(task.spec.id)
    assert read_outcomes(folder / "facts.parquet") == list(evaluate(mixture, relation).outcomes)
    assert store.read(task.spec.id).record.lm.name == f"bert ({kind.replace('-', ' ')}, seed 4)"


def test_a_control_is_asked_as_the_lm_that_it_is_made_from(world, tmp_path):
    """What stands before its sentences is chosen by what the original LM finds probable."""
    plan, store = plan_of(small(world, tmp_path, lms=[str(world.folder / "llama")], controls=BOTH))
    assert run_plan(plan, InProcess(), store, lambda _event: None) == []
    soft = [store.read(task.spec.id).record for task in plan.runs if task.spec.setting == "soft"]
    assert len(soft) == 3
    assert {record.spec.mixture.begin for record in soft} == {"auto"}
    assert len({record.mixture.model_dump_json() for record in soft}) == 1
    assert soft[0].mixture.context_scores.begins


def test_the_store_tells_controls_apart(done):
    _, store = done
    assert Counter(run["control"] for run in query_runs(store.runs()).records()) == {
        None: 4, "random-weights": 2, "random-embeddings": 2,
    }  # fmt: skip
    assert len(query_runs(store.runs(), where="control is null and tuned")) == 2


def test_at_most_one_control_lm_is_kept(done):
    plan, _ = done
    for task in plan.runs:
        worker.lm_of(task)
        assert len(worker._loaded) == 1
        assert len(worker._controls) <= 1
    controls = [task for task in plan.runs if task.spec.control]
    assert worker.lm_of(controls[-1]) is worker.lm_of(controls[-1])


def test_what_stands_beside_every_run(done):
    """Majority by hand: train has six ys once each, of which none is a y of dev or test."""
    plan, store = done
    names = ["majority", "prior", "prior-masked-x", "prior-corrected"]
    for task in plan.runs:
        folder, record = store.run_folder(task.spec.id), store.read(task.spec.id).record
        with duckdb.connect() as database:
            found = database.read_parquet(str(folder / "controls.parquet"))
            assert found.columns == ["split", "control", "relation", "x", "y", "rank", "rank_at_most"]
        kept = read_controls(folder / "controls.parquet")
        assert list(kept) == list(record.controls) == names
        assert record.controls_missing == {}
        for split, file in (("test", "facts.parquet"), ("dev", "dev.parquet")):
            facts = [(outcome.relation, outcome.x, outcome.y) for outcome in read_outcomes(folder / file)]
            for name in names:
                outcomes = kept[name][split]
                assert [(outcome.relation, outcome.x, outcome.y) for outcome in outcomes] == facts
                scores = getattr(record.controls[name], split)
                assert scores["P@1"] == pytest.approx(100 * sum(o.rank <= 1 for o in outcomes) / len(outcomes))
                assert scores["MRR"] == pytest.approx(100 * sum(1 / o.rank for o in outcomes) / len(outcomes))
        size = int(record.test.vocabulary.split()[1])
        # Test: Spain and Egypt, unseen; Paris, unseen; Norway, one of six.
        assert Counter(o.rank for o in kept["majority"]["test"]) == {1 + 6 + (size - 7) / 2: 3, 1 + 5 / 2: 1}
        assert "all 6 x's of train" in record.controls["prior"].description


def test_the_controls_are_those_of_the_saved_mixture(done, world):
    plan, store = done
    [task] = [t for t in plan.runs if (t.spec.setting, t.spec.control, t.spec.seed) == ("soft", None, 4)]
    folder = store.run_folder(task.spec.id)
    mixture = Mixture.from_pretrained(folder / "mixture", lm=load_lm(world.folder / "bert", device="cpu"))
    expected = examine(mixture, load_relation("places/capital", data=world.data)).controls.outcomes
    for name, by_split in read_controls(folder / "controls.parquet").items():
        for split in ("test", "dev"):
            assert [o.rank for o in by_split[split]] == [o.rank for o in expected[name][split]]


def test_unknown_and_repeated_controls_are_refused(world, tmp_path):
    for controls in (["random-weights", "random-weights"], ["random-biases"]):
        with pytest.raises(BadFile, match="controls"):
            read_sweep(small(world, tmp_path, controls=controls))
    with pytest.raises(BadFile, match="not a Parquet file of controls"):
        read_controls(tmp_path / "sweep.toml")


def test_a_setting_has_its_own_controls():
    spec = SweepSpec.model_validate(
        {
            "lms": ["testbed:bert"],
            "facts": ["testbed:symbol"],
            "prompts": {"single": ["testbed:single"]},
            "settings": {"soft": {"controls": ["random-weights"]}, "deep": {"deep": True}},
        }
    )
    assert spec.settings["soft"].controls == ("random-weights",)
    assert spec.settings["deep"].controls is None
    with pytest.raises(ValidationError, match="is given twice"):
        Setting.model_validate({"controls": ["random-weights", "random-weights"]})
    with pytest.raises(ValidationError, match="no effect"):
        Setting.model_validate({"tuned": False, "controls": ["random-weights"]})
