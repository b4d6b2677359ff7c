"""A run as an eval log of Inspect."""

import json
import math

import pytest
from builders.commands import exit_code
from builders.stores import keep, new_store

from askwell.runs.folder import load_runs
from askwell.tools.inspect_log import write_inspect_log

RANKS = [1.0, 4.0, math.inf, 1.0]


@pytest.fixture
def run(tmp_path):
    keep(new_store(tmp_path / "store"), RANKS, controls={"majority": [1.0, 2.0, 2.0, 2.0]})
    (run,) = load_runs(tmp_path / "store")
    return run


def test_each_fact_is_a_sample_with_its_scores(run, tmp_path):
    log = json.loads(write_inspect_log(run, tmp_path / "logs").read_text())
    (scores,) = log["results"]["scores"]
    assert {name: metric["value"] for name, metric in scores["metrics"].items()} == {
        "P@1": 50.0, "P@10": 75.0, "MRR": pytest.approx(100 * (1 + 1 / 4 + 1) / 4),
    }  # fmt: skip
    samples = log["samples"]
    assert [sample["input"] for sample in samples] == [outcome.x for outcome in run.test]
    assert [sample["target"][0] for sample in samples] == [outcome.y for outcome in run.test]
    assert [sample["scores"]["askwell"]["value"]["P@1"] for sample in samples] == [100, 0, 0, 100]
    assert [sample["scores"]["askwell"]["metadata"]["rank"] for sample in samples] == [1, 4, None, 1]
    assert "not among the first ten" in samples[2]["scores"]["askwell"]["explanation"]
    assert samples[1]["messages"][0]["content"].splitlines()[0] == f"0.5000  {run.test[1].x} in [Y] ."
    assert log["eval"]["task"] == "set:a"


def test_the_command_writes_a_log_for_each_run(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    keep(new_store(tmp_path / "store"), RANKS, seed=1)
    assert exit_code("export", "store", "--to", "inspect") == 0
    assert len([*(tmp_path / "logs").glob("*.json")]) == 2
    assert "inspect view --log-dir logs" in capsys.readouterr().err
    assert exit_code("export", "store", "--to", "inspect", "--prompt", "[X] [Y]") == 2
    assert "leave out --prompt" in capsys.readouterr().err
    assert exit_code("export", "testbed:capital", "--to", "inspect") == 2
    assert "--to inspect writes runs, and --to lm-eval a relation" in capsys.readouterr().err
    assert exit_code("export", str(run.folder), "--to", "lm-eval") == 2
    assert "is a run, and --to lm-eval writes a relation" in capsys.readouterr().err


def test_inspect_opens_the_log(run, tmp_path):
    inspect = pytest.importorskip("inspect_ai.log", reason="Inspect is not installed: pip install inspect_ai")
    write_inspect_log(run, tmp_path / "logs")
    (listed,) = inspect.list_eval_logs(str(tmp_path / "logs"))
    log = inspect.read_eval_log(listed)
    assert log.status == "success"
    assert log.results.scores[0].metrics["P@1"].value == 50.0
    assert [sample.scores["askwell"].as_dict()["P@1"] for sample in log.samples] == [100, 0, 0, 100]
    assert [sample.output.completion for sample in log.samples] == [outcome.answers[0] for outcome in run.test]
