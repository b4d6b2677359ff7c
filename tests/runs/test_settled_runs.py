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
from askwell.mixture.save import read_description
from askwell.prompts import context
from askwell.prompts.context import begin_scores
from askwell.runs.build_spec import build_run_spec
from askwell.runs.folder import load_runs
from askwell.runs.query import query_runs
from askwell.runs.run import run
from askwell.specs.training_spec import AutoPromptSpec, BaselineName, FineTuningSpec, TrainingSpec

PARSED = [parse_template(template) for template in TEMPLATES]


@pytest.mark.parametrize("baseline", [None, "lama", "lpaqa-top1", "autoprompt", "fine-tuning"])
def test_a_record_holds_what_was_chosen_once(
    baseline: BaselineName | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm, templates = exact("gpt2"), PARSED if baseline in (None, "lpaqa-top1") else PARSED[:1]
    scores, measured = begin_scores(lm, CAPITALS, templates), []

    def counted(*asked: Any) -> Any:
        measured.append(asked)
        return begin_scores(*asked)

    monkeypatch.setattr(context, "begin_scores", counted)
    choices: dict[str, Any] = {"training": TrainingSpec(pairs=8)} if baseline is None else {}
    if baseline == "autoprompt":
        choices["search"] = AutoPromptSpec(start="random", iterations=2, triggers=2, allow_ys=True)
    if baseline == "fine-tuning":
        choices["fine_tuning"] = FineTuningSpec(epochs=0)
    spec = build_run_spec(lm, CAPITALS, templates, baseline=baseline, answers="one-token", threads=1, **choices)
    assert not measured, "the spec says what is asked for"
    assert spec.mixture.begin == "auto"
    record = run(spec, lm, CAPITALS, tmp_path, untuned=True)
    assert len(measured) == 1
    assert record.spec == spec
    assert record.id == spec.id
    best = max(scores, key=scores.__getitem__)
    assert record.mixture.begin == best
    assert record.mixture.context_scores.begins == scores
    (read,) = load_runs(tmp_path)
    assert read.record.mixture == record.mixture
    (row,) = query_runs([read]).records()
    assert (row["begin"], row["lead_in"], row["shots"]) == (best, "none", 0)
    saved = read_description(tmp_path / "mixture").mixture_spec if (tmp_path / "mixture").exists() else None
    assert saved in (None, record.mixture)


def test_a_saved_mixture_of_a_run_begins_as_the_run(tmp_path: Path) -> None:
    lm = exact("gpt2")
    options: Any = {"mixture": paper_spec(begin="eos"), "training": TrainingSpec(pairs=8), "threads": 1}
    record = run(build_run_spec(lm, CAPITALS, PARSED[:1], **options), lm, CAPITALS, tmp_path, controls=False)
    config = json.loads((tmp_path / "mixture" / "config.json").read_text(encoding="utf-8"))
    assert (record.mixture.begin, config["mixture_spec"]["begin"]) == ("eos", "eos")


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
