"""The model `askwell` of the lm-evaluation-harness, and relations as its tasks."""

import json
import math
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from builders import tiny
from builders.commands import exit_code
from builders.worlds import REPEATED, frozen

import askwell
from askwell.data.facts import Fact, Relation
from askwell.data.templates import parse_template
from askwell.errors import BadOption, UsageError
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import MixtureSpec
from askwell.tools.lm_eval import HarnessModel, register
from askwell.tools.lm_eval_task import write_task

TEMPLATES = ["[X] lies in [Y] .", "the capital of [X] is [Y]"]
SEVERAL = Relation.of(
    "some: relation",
    [Fact("Lima", "Peru")],
    [Fact("Rome", "Spain")],
    [Fact("Rome", "Italy"), Fact("Paris", "France"), Fact("Oslo", "Norway")],
)


@dataclass
class Request:
    args: tuple
    doc_id: int = 0


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> Path:
    """A saved mixture whose vectors are not words."""
    folder = tmp_path_factory.mktemp("saved")
    tiny.save(*tiny.TINY["bert"](), folder / "lm")
    mixture = Mixture(askwell.load_lm(folder / "lm"), TEMPLATES, MixtureSpec(answers="one-token"))
    mixture.configure_answers(REPEATED)
    with torch.no_grad():
        mixture.vectors.add_(0.1 * torch.randn(mixture.vectors.shape, generator=torch.Generator().manual_seed(1)))
    mixture.save_pretrained(folder / "mixture")
    return folder / "mixture"


def test_a_loglikelihood_is_the_public_models(tmp_path):
    model, tokenizer = tiny.TINY["bert"]()
    tiny.save(model, tokenizer, tmp_path / "lm")
    answering = HarnessModel(lm=str(tmp_path / "lm"), prompts=TEMPLATES[0], device="cuda:0", batch_size=1)
    ids = tokenizer("Paris lies in [MASK] .", return_tensors="pt")
    at = int((ids["input_ids"][0] == tokenizer.mask_token_id).nonzero())
    expected = model(**ids).logits[0, at].log_softmax(0).detach()
    ys = ["France", "Italy", "Massachusetts Reykjavik", "Peru"]
    found = answering.loglikelihood([Request(("Paris", f" {y}")) for y in ys])
    of_words = [float(expected[tokenizer.convert_tokens_to_ids(y)]) for y in ys if " " not in y]
    assert [score for score, _ in found if math.isfinite(score)] == pytest.approx(of_words, rel=1e-4)
    assert found[2] == (-math.inf, False)
    best = max((score, y) for (score, _), y in zip(found, ys, strict=True))[1]
    assert [is_best for _, is_best in found] == [y == best for y in ys]


def test_a_continuation_by_itself_is_greedy_if_it_is_the_answer(tuned):
    answering = HarnessModel(mixture=str(tuned))
    best, second = (reply.y for reply in askwell.Mixture.from_pretrained(tuned).ask("Rome", top=2))
    requests = [Request(("Rome", f" {best}"), 1), Request(("Rome ", f" {second}"), 2)]
    assert [is_best for _, is_best in answering.loglikelihood(requests)] == [True, False]


def test_an_answer_ends_where_the_task_says(tuned):
    answering = HarnessModel(mixture=str(tuned))
    said = askwell.Mixture.from_pretrained(tuned).ask("Rome", top=1)[0].y
    asked = [Request(("Rome", options)) for options in ({"until": ["\n"]}, {"until": said[1:]}, {})]
    assert answering.generate_until(asked) == [said, said[0], said]
    with pytest.raises(UsageError, match="do_sample"):
        answering.generate_until([Request(("Rome", {"do_sample": True}))])


def test_what_a_mixture_cannot_do(tuned):
    with pytest.raises(UsageError, match="no probability to running text, which 1 requests"):
        HarnessModel(mixture=str(tuned)).loglikelihood_rolling([Request(("Some text",))])
    with pytest.raises(BadOption, match="needs mixture=FOLDER"):
        HarnessModel(lm="testbed:bert")
    with pytest.raises(BadOption, match="untuned prompts need lm=NAME"):
        HarnessModel(prompts="[X] [Y]")
    with pytest.raises(BadOption, match="--model_args pretrained"):
        HarnessModel(mixture=str(tuned), pretrained="gpt2")


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_scores_of_many_ys_are_those_of_forward(name):
    mixture = Mixture(frozen(name), TEMPLATES, MixtureSpec(answers="any-length"))
    mixture.configure_answers(REPEATED)
    xs, ys = ["Paris", "Rome", "Mary Cassatt"], ["Reykjavik", "Peru", "Paris"]
    expected = [mixture([x] * 3, ys).tolist() for x in xs]
    assert mixture.candidate_log_probs(xs, ys).tolist() == [pytest.approx(row, rel=1e-4) for row in expected]


def test_no_y_that_can_be_an_answer():
    mixture = Mixture(frozen("bert"), TEMPLATES, MixtureSpec(answers="one-token"))
    assert mixture.candidate_log_probs(["Paris", "Rome"], ["Massachusetts Reykjavik"]).tolist() == [[-math.inf]] * 2


def test_a_relation_as_a_task(tmp_path):
    assert write_task(SEVERAL, tmp_path) == "askwell_some_relation"
    lines = [json.loads(line) for line in (tmp_path / "test.jsonl").read_text().splitlines()]
    assert [(line["x"], line["y"], line["text"]) for line in lines] == [
        ("Oslo", "Norway", "Oslo"), ("Paris", "France", "Paris"), ("Rome", "Italy", "Rome"),
    ]  # fmt: skip
    everything = ["France", "Italy", "Norway", "Peru", "Spain"]
    assert lines[0]["choices"] == everything
    assert lines[2]["choices"] == ["France", "Italy", "Norway", "Peru"]  # Spain is right for Rome, too
    assert [line["gold"] for line in lines] == [2, 0, 1]
    assert (tmp_path / "candidates.txt").read_text().split() == everything


def test_a_task_for_other_models_names_the_prompt(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    template = parse_template("the capital of [X] is [Y] .")
    write_task(SEVERAL, tmp_path, template=template)
    assert json.loads((tmp_path / "test.jsonl").read_text().splitlines()[1])["text"] == "the capital of Paris is"
    with pytest.raises(BadOption, match="asks for y before it names x"):
        write_task(SEVERAL, tmp_path, template=parse_template("[Y] is in [X]"))
    assert exit_code("export", "testbed:capital", "--to", "lm-eval", "--where", "seed = 0") == 2
    assert exit_code("export", "testbed:capital", "--to", "lm-eval", "--out", "made") == 0
    assert "--include_path made --tasks askwell_testbed_capital" in capsys.readouterr().err
    assert len(Path("made/test.jsonl").read_text().splitlines()) == len(askwell.load_relation("testbed:capital").test)


def test_without_the_harness_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    register.cache_clear()
    with pytest.raises(BadOption, match="pip install lm_eval"):
        register()


@pytest.mark.parametrize("untuned", [True, False])
def test_the_harness_and_askwell_agree_on_every_fact(untuned, tuned, tmp_path, monkeypatch):
    harness = pytest.importorskip("lm_eval", reason="the lm-evaluation-harness is not installed: pip install lm_eval")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    relation = REPEATED
    task = write_task(relation, tmp_path / "task")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the harness's own
        tasks = pytest.importorskip("lm_eval.tasks")
        register()
        lm = {"lm": str(tuned.parent / "lm"), "prompts": TEMPLATES[0]}
        found = harness.simple_evaluate(
            "askwell",
            model_args=lm if untuned else {"mixture": str(tuned)},
            tasks=[task],
            task_manager=tasks.TaskManager(include_path=str(tmp_path / "task"), include_defaults=False),
            bootstrap_iters=0,
        )
    mixture = Mixture(askwell.load_lm(lm["lm"]), lm["prompts"]) if untuned else Mixture.from_pretrained(tuned)
    candidates = askwell.load_candidates(tmp_path / "task" / "candidates.txt")
    own = askwell.evaluate(mixture, relation, candidates=candidates)
    samples = sorted(found["samples"][task], key=lambda sample: sample["doc_id"])
    assert [(s["doc"]["x"], s["doc"]["y"]) for s in samples] == [(o.x, o.y) for o in own.outcomes]
    assert [s["acc"] == 1 for s in samples] == [o.rank == 1 for o in own.outcomes]
    assert 100 * found["results"][task]["acc,none"] == pytest.approx(own.micro["P@1"])
    for sample, outcome in zip(samples, own.outcomes, strict=True):
        scores = torch.tensor([float(score) for score, _ in sample["filtered_resps"]])
        chosen = float(scores.log_softmax(0)[sample["doc"]["gold"]])
        assert chosen == pytest.approx(outcome.log_probability, abs=1e-4)
