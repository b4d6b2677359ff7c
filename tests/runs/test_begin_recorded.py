"""The record of every run says what a causal LM's sentences begin with, however its mixture was made."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from agreement import exact
from builders.specs import paper_spec
from builders.worlds import CAPITALS, TEMPLATES

from askwell.baselines.run_baseline import run_baseline
from askwell.data.templates import parse_template
from askwell.prompts.begin import choose_begin
from askwell.runs.build_spec import run_spec
from askwell.runs.folder import read_runs
from askwell.runs.run import run
from askwell.specs.baseline_specs import AutoPromptSpec, BaselineName, FineTuningSpec
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec

PARSED = [parse_template(template) for template in TEMPLATES]


def test_a_record_holds_what_was_chosen(tmp_path: Path) -> None:
    lm = exact("gpt2")
    choice = choose_begin(lm, [(CAPITALS, PARSED)])
    assert choice is not None
    spec = run_spec(lm, CAPITALS, PARSED, threads=1)
    assert spec.mixture.begin == choice.begin
    record = run(spec, lm, CAPITALS, tmp_path / "chosen", controls=False)
    # A spec that leaves the choice open is the same run.
    left_open = spec.model_copy(update={"mixture": MixtureSpec()})
    again = run(left_open, lm, CAPITALS, tmp_path / "open", controls=False)
    assert again.id == again.spec.id == record.id == spec.id
    written = json.loads((tmp_path / "open" / "run.json").read_text(encoding="utf-8"))
    assert written["spec"]["mixture"]["begin"] == choice.begin
    (read,) = read_runs(tmp_path / "open")
    assert read.record.spec == spec


def test_a_saved_mixture_of_a_run_begins_as_the_run(tmp_path: Path) -> None:
    lm = exact("gpt2")
    options: Any = {"mixture": paper_spec(begin="eos"), "training": TrainingSpec(pairs=8), "threads": 1}
    record = run(run_spec(lm, CAPITALS, PARSED[:1], **options), lm, CAPITALS, tmp_path, controls=False)
    config = json.loads((tmp_path / "mixture" / "config.json").read_text(encoding="utf-8"))
    assert (record.spec.mixture.begin, config["mixture_spec"]["begin"]) == ("eos", "eos")


@pytest.mark.parametrize(
    ("name", "prompts"),
    [("lama", 1), ("lpaqa-top1", 2), ("lpaqa-uniform", 2), ("optiprompt-random", 0), ("autoprompt", 0),
     ("autoprompt", 1), ("fine-tuning", 1)],
)  # fmt: skip
def test_baselines_begin_as_they_are_told(name: BaselineName, prompts: int) -> None:
    lm = exact("gpt2")
    search = AutoPromptSpec(start="random", iterations=2, triggers=2, allow_ys=True, allow_proper_nouns=True)
    found = run_baseline(
        name,
        lm,
        PARSED[:prompts],
        CAPITALS,
        training=TrainingSpec(pairs=8, threads=1),
        search=search,
        fine_tuning=FineTuningSpec(epochs=0),
        asked=paper_spec(begin="eos"),
    )
    assert found.mixture.spec.begin == "eos"
    (eos,) = lm.beginnings["eos"].tokens
    for prompt in found.mixture.prompts:
        assert prompt.question.streams["layers"].left[0] == (eos, -1)
    assert torch.isfinite(found.mixture.vectors).all()
