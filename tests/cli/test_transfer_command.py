"""`askwell transfer`: what is carried over, scored and saved, and what cannot be carried over."""

import signal

import pytest
import torch
from builders.commands import refused, signalled
from builders.sweeps import files_in
from builders.worlds import PAIRS, TEMPLATES, write_relation

from askwell.data.names import load_relation
from askwell.lms.load import load_lm
from askwell.mixture.mixture import Mixture
from askwell.runs.folder import read_run

TUNING = ("--pairs", "40", "--threads", "1", "--no-fit-weights")


@pytest.fixture
def learned(askwell, lms, facts, tmp_path):
    """Tunes prompts on the tiny BERT, and gives the folder of the run."""

    def learn(*templates, lm="bert"):
        prompts = [word for template in templates or TEMPLATES for word in ("--prompts", template)]
        out = tmp_path / "learned"
        done = askwell("train", "--lm", lms[lm], "--facts", facts, "--out", out, *prompts, *TUNING, "--no-controls")
        assert done.code == 0, done.err
        return out

    return learn


@pytest.fixture
def transfer(askwell, facts, lms, tmp_path):
    """Carries a run over; a wrong call leaves nothing behind."""

    def transfer(run, *more, lm="roberta", out="there"):
        done = askwell("transfer", run, "--lm", lms[lm], "--facts", facts, "--out", tmp_path / out, *more)
        assert "Traceback" not in done.err
        if done.code == 2:
            assert not (tmp_path / out).exists()
        return done

    return transfer


def test_to_the_same_lm_the_scores_are_those_of_the_run(learned, transfer, tmp_path):
    done = transfer(run := learned(), "--json", lm="bert")
    assert done.code == 0, done.err
    own = read_run(run).record.test
    for found in (done.json["test"], done.json["transfer"]["source"]):
        assert found["log_loss"] == pytest.approx(own.log_loss, abs=1e-6)
        assert found["micro"] == pytest.approx(own.micro)
    assert done.json["transfer"]["words"]["log_loss"] != pytest.approx(own.log_loss, abs=1e-6)
    saved, first = (Mixture.from_pretrained(folder) for folder in (tmp_path / "there", run))
    assert torch.equal(saved.vectors, first.vectors)
    assert saved.transferred is not None
    assert saved.transferred.is_copy


def test_to_another_lm_it_is_what_python_carries_over(learned, transfer, lms, facts, tmp_path):
    done = transfer(run := learned())
    assert done.code == 0, done.err
    assert all(part in done.out for part in ("learned on", "as words", "carried over", "shared words"))
    other = Mixture.from_pretrained(run).transfer(load_lm(str(lms["roberta"])), load_relation(str(facts)))
    there = read_run(tmp_path / "there")
    losses = [-float(other([fact.x], [fact.y]).detach()) for fact in there.test]
    assert there.record.test.log_loss == pytest.approx(sum(losses) / len(losses), abs=1e-4)
    assert there.record.spec.start is not None
    assert there.record.spec.training is None


def test_what_is_printed_says_how_vectors_went_over_and_what_to_do_next(learned, transfer, tmp_path):
    done = transfer(run := learned(), "--no-controls", lm="bert")
    assert "the vectors went over as they are" in done.out
    assert "shared words" not in done.out
    there = tmp_path / "there"
    assert f'askwell ask {there} "…", or askwell compare {run} {there}' in " ".join(done.out.split())


def test_facts_that_the_other_lm_cannot_answer_are_named(askwell, learned, lms, tmp_path):
    """The sign # is a word of the tiny BERT and two tokens of the tiny RoBERTa."""
    run = learned()
    facts = write_relation(tmp_path / "more", train=PAIRS[:6], dev=PAIRS[6:8], test=[*PAIRS[6:], ("Quito", "#")])
    done = askwell("transfer", run, "--lm", lms["roberta"], "--facts", facts, "--out", tmp_path / "t", "--no-controls")
    assert done.code == 0, done.err
    assert "left out of test: 1 fact" in " ".join(done.err.split())
    assert "bert was asked 5 of the test facts" in " ".join(done.out.split())


def test_tuning_begins_with_what_was_carried_over(learned, transfer, tmp_path):
    run = learned()
    assert transfer(run, out="asked").code == 0
    done = transfer(run, "--tune", *TUNING)
    assert done.code == 0, done.err
    asked, tuned = read_run(tmp_path / "asked").record, read_run(tmp_path / "there").record
    assert tuned.untuned == asked.test, "before tuning it is the mixture that was carried over"
    assert tuned.id != asked.id
    assert tuned.training is not None
    assert tuned.training.pairs


def test_another_start_is_another_run(learned, transfer, askwell, lms, facts, tmp_path):
    assert transfer(learned(), "--tune", *TUNING).code == 0
    spec = read_run(tmp_path / "there").record.spec
    assert spec.model_copy(update={"start": None}).id != spec.id
    assert spec.start is not None
    other = spec.start.model_copy(update={"mixture_sha256": "0" * 64})
    assert spec.model_copy(update={"start": other}).id != spec.id
    assert "start" not in read_run(tmp_path / "learned").record.spec.model_dump(), "other runs keep their ids"


def test_an_interrupted_one_continues_to_the_same_files(learned, transfer, lms, facts, tmp_path):
    run = learned()
    assert transfer(run, "--tune", *TUNING).code == 0
    cut = tmp_path / "cut"
    command = ("transfer", run, "--lm", lms["roberta"], "--facts", facts, "--out", cut, "--tune", *TUNING)
    stopped = signalled(signal.SIGINT, *command, before="checkpoint.safetensors", times=2)
    assert stopped.code == 130, stopped.err
    assert (cut / "checkpoint.safetensors").exists()
    assert transfer(run, "--tune", *TUNING, "--resume", out="cut").code == 0
    assert files_in(cut) == files_in(tmp_path / "there")


def test_an_lm_that_can_use_no_prompt_is_refused(learned, transfer):
    refused(transfer(learned("[Y] is the capital of [X] ."), lm="llama"), "no prompts left")


def test_mistakes_get_a_sentence(learned, transfer, askwell, tmp_path, facts):
    run = learned()
    refused(transfer(tmp_path / "nowhere"), "nowhere")
    refused(transfer(run, "--pairs", "10"), "--tune")
    refused(transfer(run, "--resume"), "--tune")
    refused(askwell("transfer", run, "--out", tmp_path / "there"), "--lm")
    refused(askwell("transfer", run, "--lm", tmp_path / "no-lm", "--facts", facts, "--out", tmp_path / "x"), "no-lm")
    empty = write_relation(tmp_path / "others", train=PAIRS[:2], dev=PAIRS[2:3], test=[("Zz", "Qq qq qqqq")])
    assert askwell("transfer", run, "--lm", "testbed:nothing", "--facts", empty, "--out", tmp_path / "y").code == 2
