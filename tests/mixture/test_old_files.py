"""Mixtures that version 0.1.0 saved load, and answer as they did."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from askwell.answers.kind import ONE_TOKEN
from askwell.data.names import read_relation
from askwell.evaluation.outcomes import read_outcomes
from askwell.evaluation.scoring import evaluate
from askwell.lms.load import load_lm
from askwell.mixture.save import load_mixture

OLD = Path(__file__).parents[1] / "fixtures" / "v0.1.0"


@pytest.mark.parametrize("seed", [0, 1])
def test_a_deep_mixture_of_version_0_1_0_loads_and_answers_as_it_did(seed: int) -> None:
    folder = OLD / "seeds" / f"seed-{seed}"
    mixture = load_mixture(folder, load_lm("testbed:bert", device="cpu"))
    written = load_file(folder / "mixture.safetensors")
    stacked = written["deltas.layers"]
    assert stacked.any()
    assert torch.equal(torch.stack(mixture.layer_deltas["layers"]), stacked)
    assert torch.equal(mixture.weight_logits, written["weight_logits"])
    assert torch.equal(mixture.vectors, written["vectors"])
    assert mixture.temperature is None
    expected = read_outcomes(folder / "facts.parquet")
    found = evaluate(mixture, read_relation(str(OLD / "facts" / "capital"))).outcomes
    assert [(o.x, o.y, o.rank, o.answers) for o in found] == [(o.x, o.y, o.rank, o.answers) for o in expected]
    assert [o.log_probability for o in found] == pytest.approx([o.log_probability for o in expected], abs=1e-4)


def test_a_shallow_mixture_of_version_0_1_0_loads(tmp_path: Path) -> None:
    mixture = load_mixture(OLD / "train", load_lm("testbed:bert", device="cpu"))
    written = load_file(OLD / "train" / "mixture.safetensors")
    assert torch.equal(mixture.weight_logits, written["weight_logits"])
    assert not mixture.layer_deltas
    mixture.save_pretrained(tmp_path)
    again = load_mixture(tmp_path, mixture.lm)
    assert torch.equal(again.vectors, mixture.vectors)


@pytest.mark.parametrize("name", ["train", "baseline", "seeds/seed-0"])
def test_mixtures_of_version_0_1_0_answer_with_one_token(name: str, tmp_path: Path) -> None:
    mixture = load_mixture(OLD / name, load_lm("testbed:bert", device="cpu"))
    assert (mixture.spec.answers, mixture.spec.begin) == ("one-token", "space")
    assert mixture.answering().kind == ONE_TOKEN
    relation = read_relation(str(OLD / "facts" / "capital"))
    assert mixture.encode_relation(relation).kind == ONE_TOKEN
    mixture.save_pretrained(tmp_path)
    assert load_mixture(tmp_path, mixture.lm).spec == mixture.spec
