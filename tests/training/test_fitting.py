"""The weights that are fitted before prompts are tuned, against a direct solve over the prompts' own distributions."""

from typing import Any

import numpy as np
import pytest
import torch
from agreement import exact, log_temperature_of, usable
from builders.specs import paper_spec
from builders.worlds import CAPITALS, FACTS
from scipy.optimize import minimize

from askwell.data.facts import Fact, Relation
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training import optimiser
from askwell.training.history import Interrupted
from askwell.training.loop import train
from askwell.training.optimiser import (
    choose_tuned,
    choose_weighting,
    facts_to_fit,
    fit_lengths,
    fit_weights,
    fits_weights,
)

LONG = [Fact("Paris", "Rome"), Fact("Mary Cassatt", "Rome Cassatt"), Fact("Reykjavik", "Cassatt")]
RELATION = Relation.of("r", LONG, LONG, LONG)
WEIGHTS: dict[str, Any] = {"tune_vectors": False, "threads": 1}


def asked(mixture):
    """p(y | t, x) of every fact and prompt, and minus the entropy of p(· | t, x), one pair at a time."""
    encoded, _ = mixture.encode(FACTS)
    gold, certainty = np.zeros((2, len(encoded), len(mixture.prompts)))
    for fact in range(len(encoded)):
        for prompt in range(len(mixture.prompts)):
            log_probs = mixture.word_log_probs(encoded.xs, torch.tensor([fact]), prompt)[0].numpy()
            gold[fact, prompt] = np.exp(log_probs[int(encoded.answers[fact])])
            certainty[fact, prompt] = (np.exp(log_probs) * log_probs).sum()
    return gold, certainty


def penalised(numbers, gold, certainty):
    """The loss of logits and, behind them, of log T where there is one; each is held at 0 by half a fact's weight."""
    prompts = gold.shape[1]
    scores = numbers[:prompts] + (certainty * np.exp(-numbers[prompts]) if len(numbers) > prompts else 0)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    return -np.log((gold * weights).sum(1)).mean() + (numbers**2).sum() / 4 / len(gold)


@pytest.mark.parametrize("weighting", ["static", "certainty"])
def test_the_fit_is_that_of_a_direct_solve(weighting):
    mixture = Mixture(exact("bert"), usable("bert"), paper_spec(weighting=weighting))
    gold, certainty = asked(mixture)
    encoded, _ = mixture.encode(FACTS)
    answers, start = mixture.answering(kind=encoded.kind), mixture.weight_logits.detach().clone()
    choose_tuned(mixture, TrainingSpec(**WEIGHTS))
    reached = fit_weights(answers, encoded)
    tuned = [mixture.weight_logits.detach() - start]
    tuned += [log_temperature_of(mixture).detach()[None]] if weighting == "certainty" else []
    found = torch.cat(tuned).numpy()
    best = minimize(penalised, np.zeros(len(found)), args=(gold, certainty), tol=1e-12)
    assert penalised(found, gold, certainty) == pytest.approx(best.fun, abs=1e-7)
    assert reached == pytest.approx(best.fun - (best.x**2).sum() / 4 / len(gold), abs=1e-4)
    assert reached < -np.log(gold.mean(1)).mean() - 0.01  # it is better than equal weights


def cross_validated(gold, signals):
    """The loss of each fact under weights that were fitted to the facts of the other four fifths."""
    prompts, losses = gold.shape[1], np.zeros(len(gold))

    def weights(numbers, rows):
        scores = numbers[:prompts] + sum(
            signal[rows] * np.exp(-log_t) for signal, log_t in zip(signals, numbers[prompts:], strict=True)
        )
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    for fold in range(5):
        rows = np.arange(len(gold)) % 5 != fold

        def loss(numbers, rows=rows):
            return -np.log((gold[rows] * weights(numbers, rows)).sum(1)).mean() + (numbers**2).sum() / 4 / rows.sum()

        best = minimize(loss, np.zeros(prompts + len(signals)), tol=1e-12).x
        losses[~rows] = -np.log((gold[~rows] * weights(best, ~rows)).sum(1))
    return losses


@pytest.mark.parametrize("clearly", [-100.0, 100.0])
def test_a_weighting_is_chosen_by_facts_that_weights_were_not_fitted_to(monkeypatch, clearly):
    monkeypatch.setattr(optimiser, "LEAST_FACTS", 5)
    monkeypatch.setattr(optimiser, "CLEARLY", clearly)
    mixture, spec = Mixture(exact("bert"), usable("bert")[:3], paper_spec(weighting="auto")), TrainingSpec(**WEIGHTS)
    gold, certainty = asked(mixture)
    encoded, _ = mixture.encode(FACTS)
    with torch.no_grad():
        of_x = mixture.log_p_x(encoded.xs, encoded.rows).numpy()
    choose_tuned(mixture, spec)
    start = mixture.weights.detach().clone()
    choose_weighting(mixture, mixture.answering(kind=encoded.kind), encoded, spec)
    static, by_x = cross_validated(gold, []), cross_validated(gold, [of_x, certainty])
    assert mixture.spec.weighting_scores == {
        "combined": pytest.approx(by_x.mean(), abs=1e-5), "static": pytest.approx(static.mean(), abs=1e-5),
    }  # fmt: skip
    gain = static - by_x
    is_clear = gain.mean() > clearly * gain.std(ddof=1) / len(gain) ** 0.5
    assert mixture.spec.weighting == ("combined" if is_clear else "static")
    assert is_clear == (clearly < 0)
    assert torch.equal(mixture.weights.detach(), start), "nothing is fitted yet"
    assert mixture.temperature is None


def test_too_few_facts_choose_nothing():
    mixture = Mixture(exact("bert"), usable("bert"), paper_spec(weighting="auto"))
    result = train(mixture, CAPITALS, epochs=1, threads=1, progress=False)
    assert (mixture.spec.weighting, mixture.spec.weighting_scores) == ("static", {})
    assert result.history
    assert Mixture(exact("bert"), usable("bert")[:1]).spec.weighting == "static", "one prompt has all the weight"


def test_a_run_that_chose_its_weighting_is_resumed_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(optimiser, "LEAST_FACTS", 3)
    monkeypatch.setattr(optimiser, "CLEARLY", -100.0)

    def new() -> Mixture:
        return Mixture(exact("bert"), usable("bert")[:2], paper_spec(weighting="auto"))

    def stop(progress):
        if progress.pairs_done and progress.record is not None:
            raise KeyboardInterrupt

    spec, whole, resumed = TrainingSpec(pairs=40, threads=1), new(), new()
    expected = train(whole, CAPITALS, spec, progress=False)
    with pytest.raises(Interrupted):
        train(new(), CAPITALS, spec, folder=tmp_path, progress=stop)
    assert train(resumed, CAPITALS, spec, folder=tmp_path, resume=True, progress=False).history == expected.history
    assert resumed.spec == whole.spec
    assert whole.spec.weighting == "combined"
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name


def test_lengths_are_fitted_and_the_prompts_stay():
    spec = MixtureSpec(begin="space", lead_in="none", shots=0, answers="any-length")
    mixture = Mixture(exact("bert"), usable("bert"), spec)
    before = mixture.vectors.detach().clone()
    mixture.configure_answers(RELATION)
    encoded = mixture.encode_relation(RELATION).split("train")
    answers = mixture.answering()
    with torch.no_grad():
        untuned = -float(answers.likelihood(encoded, encoded.rows).total.mean())
    choose_tuned(mixture, TrainingSpec(**WEIGHTS))
    reached = fit_lengths(answers, encoded)
    assert torch.equal(mixture.vectors, before)
    assert torch.equal(mixture.weights, torch.full_like(mixture.weights, 1 / len(mixture.prompts)))
    assert mixture.lengths is not None
    assert float(mixture.lengths.slope.detach()) != 0
    with torch.no_grad():  # read again, not from what was kept
        again = -float(answers.likelihood(encoded, encoded.rows).total.mean())
    assert again == pytest.approx(reached, rel=1e-6)
    assert reached < untuned - 0.01


@pytest.mark.parametrize("choices", [{"fit_weights": False}, {"recipe": "paper"}, {"tune_weights": False}])
def test_nothing_is_fitted_unless_there_is_something_to_fit(choices):
    mixture = Mixture(exact("bert"), usable("bert"), paper_spec())
    spec = TrainingSpec(threads=1, **choices)
    choose_tuned(mixture, spec)
    assert not fits_weights(mixture.answering(), spec)


def test_one_prompt_has_no_weight_to_fit():
    mixture = Mixture(exact("bert"), usable("bert")[:1], paper_spec())
    choose_tuned(mixture, TrainingSpec())
    assert not fits_weights(mixture.answering(), TrainingSpec())


def test_the_fitted_state_is_scored_before_any_step():
    mixture = Mixture(exact("bert"), usable("bert"), paper_spec())
    result = train(mixture, CAPITALS, epochs=1, threads=1, progress=False)
    untuned, fitted, *steps = result.history
    assert (untuned.pairs, fitted.pairs) == (0, 0)
    assert (untuned.train_loss, fitted.train_loss) == (None, None)
    assert steps


def test_prompts_that_weigh_next_to_nothing_are_dropped_for_static_weights_alone():
    kept = {}
    for weighting in ("static", "certainty"):
        mixture = Mixture(exact("bert"), usable("bert")[:3], paper_spec(weighting=weighting))
        encoded, _ = mixture.encode(FACTS)
        choose_tuned(mixture, TrainingSpec(**WEIGHTS))
        with torch.no_grad():
            mixture.weight_logits[0] = -20.0
        fit_weights(mixture.answering(kind=encoded.kind), encoded)
        kept[weighting] = mixture.tuned.kept.tolist()
    assert kept == {"static": [1, 2], "certainty": [0, 1, 2]}


def test_few_facts_are_read_where_there_are_many_prompts():
    assert [facts_to_fit(prompts) for prompts in (1, 16, 64, 1000)] == [3200, 200, 50, 32]
