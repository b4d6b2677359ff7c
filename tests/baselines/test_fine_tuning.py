"""Fine-tuning: on a copy, all weights, better on what it is trained on."""

import hashlib

import by_hand
import pytest
import torch
from builders.specs import paper_spec
from builders.worlds import CAPITALS, FACTS, REPEATED, frozen

from askwell.answers.one_token import OneTokenAnswers
from askwell.baselines.fine_tuning import fine_tune
from askwell.data.templates import parse_template
from askwell.errors import BadOption
from askwell.evaluation.examine import evaluate_split
from askwell.lms.machine import Memory
from askwell.mixture.mixture import Mixture
from askwell.runs.folder import clear_folder
from askwell.specs.training_spec import FineTuningSpec

TEMPLATE = parse_template("[X] lies in [Y] .")
SPEC = FineTuningSpec(epochs=4, batch_facts=4, learning_rate=3e-3)


def hash_of(lm) -> str:
    content = [(name, tensor.numpy().tobytes()) for name, tensor in sorted(lm.model.state_dict().items())]
    return hashlib.sha256(repr(content).encode()).hexdigest()


@pytest.mark.parametrize("name", ["bert", "roberta", "bart", "llama"])
def test_the_given_lm_stays_and_the_tuned_one_gets_better(name):
    lm = frozen(name)
    before, untuned = hash_of(lm), evaluate_split(Mixture(lm, [TEMPLATE], paper_spec()), REPEATED).log_loss
    result = fine_tune(lm, REPEATED, TEMPLATE, SPEC)
    assert hash_of(lm) == before
    assert not any(parameter.requires_grad for parameter in lm.model.parameters())
    losses = [record.loss for record in result.history[1:] if record.loss is not None]
    assert losses[-1] < losses[0] < untuned + 0.5
    assert evaluate_split(result.mixture, REPEATED).log_loss < untuned - 0.5
    assert result.mixture.lm.identity.differences(lm.identity)


def test_every_weight_that_the_loss_reaches_is_tuned():
    lm = frozen("bert")
    result = fine_tune(lm, REPEATED, TEMPLATE, SPEC)
    old, new = lm.model.state_dict(), result.mixture.lm.model.state_dict()
    same = {name for name in old if torch.equal(old[name], new[name])}
    assert not [name for name in same if "position_ids" not in name and "token_type" not in name]
    prompt = result.mixture.prompts[0].token_ids  # the prompt's own words move, too
    assert torch.equal(result.mixture.vectors, new["bert.embeddings.word_embeddings.weight"][list(prompt)])


def test_its_first_loss_is_that_of_the_public_model():
    lm = frozen("bert")
    spec = FineTuningSpec(epochs=1, batch_facts=len(FACTS), learning_rate=1e-12)
    result = fine_tune(lm, REPEATED, TEMPLATE, spec)
    expected = by_hand.loss(lm, FACTS, by_hand.ids_of(lm, "lies", "in"))
    assert result.history[1].loss == pytest.approx(expected, abs=1e-5)


def test_the_state_that_was_best_on_dev_is_kept():
    lm = frozen("bert")
    result = fine_tune(lm, CAPITALS, TEMPLATE, SPEC)
    best = min(result.history, key=lambda record: (-record.dev["P@1"], record.dev["log_loss"]))
    dev = evaluate_split(result.mixture, CAPITALS, split="dev")
    assert dev.micro["P@1"] == best.dev["P@1"]
    assert dev.log_loss == pytest.approx(best.dev["log_loss"], abs=1e-4)
    assert result.learned_from.best_epoch == best.number


def test_the_same_seed_gives_the_same_weights_and_no_epoch_the_old_ones():
    first, second = (fine_tune(frozen("bert"), REPEATED, TEMPLATE, SPEC, seed=2) for _ in range(2))
    assert first.history == second.history
    assert hash_of(first.mixture.lm) == hash_of(second.mixture.lm)
    lm = frozen("bert")
    untouched = fine_tune(lm, REPEATED, TEMPLATE, FineTuningSpec(epochs=0))
    assert hash_of(untouched.mixture.lm) == hash_of(lm)


def test_the_tuned_lm_is_saved_and_read_again(tmp_path):
    result = fine_tune(frozen("bert"), REPEATED, TEMPLATE, SPEC, folder=tmp_path)
    result.mixture.save_pretrained(tmp_path)
    again = Mixture.from_pretrained(tmp_path)
    facts, _ = again.encode(FACTS)
    every = torch.arange(len(facts))
    assert torch.equal(
        OneTokenAnswers(again).log_probs(facts.xs, every), OneTokenAnswers(result.mixture).log_probs(facts.xs, every)
    )


def test_the_tuned_lm_goes_with_its_run_and_nothing_else_does(tmp_path):
    tuned = tmp_path / "fine-tuned-lm"
    for _ in range(2):  # the second time, in place of what an interrupted run has left
        fine_tune(frozen("bert"), REPEATED, TEMPLATE, SPEC, folder=tmp_path)
    (tuned / "notes.txt").write_text("mine")
    clear_folder(tmp_path)
    assert [path.name for path in tuned.iterdir()] == ["notes.txt"]
    with pytest.raises(BadOption, match="fine-tuned-lm is where the tuned LM is to be saved: move it"):
        fine_tune(frozen("bert"), REPEATED, TEMPLATE, SPEC, folder=tmp_path)
    (tuned / "notes.txt").unlink()
    clear_folder(tmp_path)
    assert not tuned.exists()


def test_it_refuses_what_does_not_fit_in_memory(monkeypatch):
    lm = frozen("bert")
    parameters = sum(parameter.numel() for parameter in lm.model.parameters())
    monkeypatch.setattr("askwell.baselines.fine_tuning.memory_of", lambda _device: Memory(0, 16 * parameters - 1))
    with pytest.raises(BadOption, match=f"16 bytes for each of {parameters:,} parameters.*smaller LM"):
        fine_tune(lm, REPEATED, TEMPLATE, SPEC)
    monkeypatch.setattr("askwell.baselines.fine_tuning.memory_of", lambda _device: Memory(0, 16 * parameters))
    fine_tune(lm, REPEATED, TEMPLATE, FineTuningSpec(epochs=0))
