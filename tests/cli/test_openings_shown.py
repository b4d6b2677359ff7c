"""Lead-ins and examples on the command line: in runs, saved mixtures, `ask`, `evaluate` and `show`."""

import json

import pytest
from builders.worlds import TEMPLATES

from askwell.specs.run_spec import Setting


@pytest.fixture
def trained(askwell, lms, facts, tmp_path):
    """A run of two prompts with two examples each."""
    prompts = ("--prompts", TEMPLATES[0], "--prompts", TEMPLATES[1])
    opening = ("--shots", "2", "--shot-draws", "2", "--lead-in", "The city :", "--prefix", "1")
    common = ("--lm", lms["llama"], "--facts", facts, "--threads", "1", "--begin", "nothing", "--pairs", "12")
    done = askwell("train", *common, *prompts, *opening, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    return done, tmp_path / "out"


def test_a_run_records_its_examples_and_uses_them_everywhere(askwell, trained, facts):
    done, out = trained
    assert "examples before the question: 2 train facts, the best of 2 draws on dev for each prompt" in done.err
    assert "sentences are preceded by: The city :" in done.err
    record = json.loads((out / "run.json").read_text())
    assert record["spec"]["setting"] == "soft, lead-in, 2 shots, prefix of 1"
    lines = [json.loads(line) for line in (facts / "train.jsonl").read_text().splitlines()]
    train = {(line["x"], line["y"]) for line in lines} if "x" in lines[0] else {(o["sub"], o["obj"]) for o in lines}
    for prompt in record["prompts"]:
        assert len(prompt["examples"]) == 2
        assert {tuple(pair) for pair in prompt["examples"]} <= train
        assert len(prompt["example_log_losses"]) == 2
    again = askwell("evaluate", out, "--facts", facts, "--json")
    assert again.code == 0, again.err
    assert again.json["micro"] == record["test"]["micro"]
    shown = askwell("show", out, "--json")
    assert shown.code == 0, shown.err
    assert all(len(prompt["sentences"]) == 2 for prompt in shown.json)
    asked = askwell("ask", out, "Paris", "--json")
    assert asked.code == 0, asked.err


def test_untuned_prompts_take_examples_too(askwell, lms, facts):
    prompts = ("--prompts", TEMPLATES[0], "--shots", "2")
    done = askwell("evaluate", "--lm", lms["bert"], "--facts", facts, *prompts, "--json")
    assert done.code == 0, done.err
    without = askwell("ask", "--lm", lms["bert"], *prompts, "Paris")
    assert without.code == 2
    assert "--shots: examples are train facts; name the relation" in without.err


def test_a_setting_of_a_sweep_has_them():
    setting = Setting.model_validate({"shots": 4, "lead_in": "A fact :", "prefix": 2})
    assert (setting.mixture.shots, setting.mixture.lead_in, setting.mixture.prefix) == (4, "A fact :", 2)
