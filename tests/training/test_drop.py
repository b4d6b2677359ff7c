"""Dropped prompts have no weight and cost nothing; the others continue as if they were alone."""

import pytest
import torch
from builders.specs import paper_spec
from builders.worlds import CAPITALS, FACTS, TEMPLATES, frozen
from pydantic import ValidationError

from askwell.answers.one_token import OneTokenAnswers
from askwell.errors import BadOption
from askwell.evaluation.examine import evaluate_split
from askwell.mixture.mixture import Mixture
from askwell.specs.training_spec import TrainingSpec
from askwell.training.loop import Objective, train
from askwell.training.optimiser import choose_tuned


def uneven(templates, weights, **spec):
    mixture = Mixture(frozen("bert", "float64"), templates, paper_spec(**spec))
    mixture.weight_logits.data.copy_(torch.tensor(weights, dtype=torch.float64).log())
    return mixture


@pytest.mark.parametrize("method", ["gradient", "em"])
def test_what_is_left_is_the_mixture_of_the_other_prompts(method):
    dropped, alone = uneven(TEMPLATES, [0.6, 0.02, 0.38], deep=True), uneven(TEMPLATES[::2], [0.6, 0.38], deep=True)
    assert dropped.drop_prompts(0.03) == 1
    assert dropped.weights.tolist()[1] == 0
    gradients, likelihoods = [], []
    for mixture in (dropped, alone):
        choose_tuned(mixture, TrainingSpec(method=method))
        facts, _ = mixture.encode(FACTS)
        loss = Objective(mixture.answering(kind=facts.kind), facts, method).loss(torch.arange(len(facts)))
        loss.to_minimise.backward()
        likelihoods.append(loss.negative_log_likelihood)
        assert mixture.vectors.grad is not None
        gradients.append(mixture.vectors.grad[mixture.vectors.grad.abs().sum(1) > 0])
    assert likelihoods[0] == pytest.approx(likelihoods[1], abs=1e-10)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-9, atol=1e-12)
    of_both = [evaluate_split(mixture, CAPITALS) for mixture in (dropped, alone)]
    assert of_both[0].log_loss == pytest.approx(of_both[1].log_loss, abs=1e-10)


def test_a_dropped_prompt_is_not_asked_again(monkeypatch):
    mixture = uneven(TEMPLATES, [0.6, 0.02, 0.38])
    mixture.drop_prompts(0.03)
    facts, _ = mixture.encode(FACTS)
    asked = set()
    table = mixture.pairs.y_table
    batch = table.batch
    monkeypatch.setattr(
        table, "batch", lambda xs, texts, prompts: asked.update(prompts.tolist()) or batch(xs, texts, prompts)
    )
    every = torch.arange(len(facts))
    assert bool(
        (mixture.pairs.gold_log_probs(mixture.tuned, facts.xs, facts.gold_tokens, every)[:, 1] == -torch.inf).all()
    )
    OneTokenAnswers(mixture).log_probs(facts.xs, every)
    assert asked == {0, 2}


def test_the_heaviest_prompt_stays():
    mixture = uneven(TEMPLATES, [0.5, 0.3, 0.2])
    assert mixture.drop_prompts(0.99) == 2
    assert mixture.weights.tolist() == [1, 0, 0]


@pytest.mark.parametrize("method", ["gradient", "em"])
def test_training_drops_after_a_third_and_goes_on_when_interrupted(tmp_path, method):
    spec = TrainingSpec(method=method, pairs=240, drop_below=0.33, threads=1)
    whole = Mixture(frozen("bert"), TEMPLATES, paper_spec())
    effective = []
    result = train(whole, CAPITALS, spec, progress=lambda p: effective.append(p.record and p.record.effective_prompts))
    dropped = int((whole.weight_logits == -torch.inf).sum())
    assert result.best.pairs < 90 or dropped >= 1
    assert min(line.effective_prompts for line in result.history) <= 2 < result.history[1].effective_prompts

    calls = []

    def interrupt(progress):
        calls.append(progress)
        if progress.pairs_done > 150:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(Mixture(frozen("bert"), TEMPLATES, paper_spec()), CAPITALS, spec, folder=tmp_path, progress=interrupt)
    second = Mixture(frozen("bert"), TEMPLATES, paper_spec())
    assert train(second, CAPITALS, spec, folder=tmp_path, resume=True).history == result.history
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), second.parameters(), strict=True))


def test_where_it_makes_no_sense_it_is_refused():
    with pytest.raises(BadOption, match="`drop_below`"):
        train(
            Mixture(frozen("bert"), TEMPLATES, paper_spec(weighting="data-dependent")),
            CAPITALS,
            TrainingSpec(drop_below=0.1),
        )
    with pytest.raises(ValidationError, match="drop_below"):
        TrainingSpec(recipe="paper", drop_below=0.1)


@pytest.mark.parametrize("method", ["gradient", "em"])
def test_what_is_dropped_does_not_come_back_during_training(method):
    mixture = uneven(TEMPLATES, [0.6, 0.02, 0.38])
    dropped = []
    train(
        mixture,
        CAPITALS,
        TrainingSpec(method=method, pairs=240, drop_below=0.33, threads=1),
        progress=lambda _: dropped.append({*(mixture.weight_logits == -torch.inf).nonzero()[:, 0].tolist()}),
    )
    first = next(number for number, found in enumerate(dropped) if found)
    assert len(dropped) > first + 5
    assert all(dropped[first] <= found for found in dropped[first:-1])
