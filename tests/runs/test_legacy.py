"""Folders that askwell 0.1.0 wrote still load: of train, of its seeds, of a baseline, of a sweep and of the demo."""

import json
import shutil
from pathlib import Path

import duckdb
import pytest

from askwell.errors import DamagedFile
from askwell.mixture.save import load_mixture
from askwell.runs.folder import Run, outcomes_of, read_run, read_runs
from askwell.runs.query import choose_run, query_runs

OLD = Path(__file__).parent.parent / "fixtures" / "v0.1.0"
DEMO = OLD / "demo"


def p_at_1(run: Run) -> float:
    """Counted with SQL over the Parquet file, not with askwell."""
    with duckdb.connect() as database:
        file = run.folder / "facts.parquet"
        return float(database.execute(f"SELECT 100.0 * avg((rank <= 1)::INT) FROM '{file}'").fetchall()[0][0])


@pytest.mark.parametrize(("name", "count"), [("train", 1), ("seeds", 2), ("baseline", 1), ("store", 3), ("demo", 2)])
def test_each_kind_of_folder_is_read_with_its_scores(name, count):
    runs = read_runs(OLD / name)
    assert len(runs) == count
    for run in runs:
        assert run.record.test.facts == len(run.test)
        assert run.record.test.micro["P@1"] == pytest.approx(p_at_1(run))
        assert run.record.prompts
        assert sum(prompt.weight for prompt in run.record.prompts) == pytest.approx(1, abs=1e-6)


def test_a_stored_run_keeps_its_id_and_all_that_was_measured():
    for run in read_runs(OLD / "store"):
        assert run.record.id == run.folder.name
        assert run.record.spec.id == run.folder.name
        metrics = json.loads((run.folder / "metrics.json").read_text())
        assert run.record.dev is not None
        assert run.record.dev.micro["MRR"] == metrics["dev"]["micro"]["MRR"]
        assert {name: control.description for name, control in run.record.controls.items()} == {
            name: control["description"] for name, control in metrics["controls"].items()
        }
        assert run.record.trust is not None
        assert run.record.trust.calibration.ece == metrics["trust"]["calibration"]["ece"]
        assert run.record.audit is not None
        assert run.record.audit.leaked_pairs == metrics["audit"]["leaked_pairs"]
        assert run.record.environment.seconds == json.loads((run.folder / "environment.json").read_text())["seconds"]


@pytest.mark.parametrize("name", ["train", "seeds/seed-0", "seeds/seed-1", "baseline"])
def test_saved_mixtures_answer_as_they_did(name):
    run = read_run(OLD / name)
    mixture = load_mixture(run.folder)
    for outcome in run.test[:5]:
        replies = mixture.ask(outcome.x, top=len(outcome.answers))
        assert [reply.y for reply in replies[:3]] == list(outcome.answers[:3])
        assert replies[0].probability == pytest.approx(outcome.probabilities[0], rel=1e-4)


def test_the_best_seed_is_asked_and_seeds_can_be_paired():
    assert choose_run(OLD / "seeds").folder.parent == OLD / "seeds"
    assert set(outcomes_of(read_runs(OLD / "seeds"))) == {0, 1}


def test_runs_of_all_kinds_stand_in_one_table():
    runs = [run for name in ("train", "seeds", "baseline", "store", "demo") for run in read_runs(OLD / name)]
    table = query_runs(runs, where="baseline = 'lama' or setting = 'soft-mixture'", sort="P@1")
    assert len(table.rows) == 2


def test_a_damaged_folder_is_refused_in_one_sentence(tmp_path):
    shutil.copytree(OLD / "train", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    del config["learned_from"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    with pytest.raises(DamagedFile, match=r"askwell 0\.1\.0 that is damaged"):
        read_run(tmp_path / "run")


@pytest.mark.parametrize(
    "change",
    [
        {"mixture_spec": []},
        {"scores": []},
        {"scores": {"test": []}},
        {"learned_from": 0.0},
        {"learned_from": {"relation": []}},
        {"prompts": [3]},
    ],
    ids=lambda change: json.dumps(change),
)
def test_a_document_of_another_shape_is_damaged(change, tmp_path):
    folder = shutil.copytree(OLD / "baseline", tmp_path / "baseline")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(DamagedFile, match="is damaged"):
        read_run(folder)


def test_a_document_that_is_nested_without_end_is_damaged(tmp_path):
    folder = shutil.copytree(OLD / "baseline", tmp_path / "baseline")
    (folder / "config.json").write_text("[" * 100_000)
    with pytest.raises(DamagedFile, match="it is not JSON"):
        read_run(folder)
