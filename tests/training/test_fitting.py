"""The weights that are fitted before prompts are tuned, against a direct solve over the prompts' own distributions."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from agreement import exact, log_temperature_of, usable
from builders.specs import paper_spec
from builders.worlds import CAPITALS, FACTS
from scipy.optimize import minimize
from scipy.special import logsumexp

from askwell.data.facts import Fact, Relation
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training import loop, optimiser
from askwell.training.history import HistoryLine, Interrupted, best_of, gain_over, may_be_kept
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


@pytest.mark.parametrize(("hardly", "clearly"), [(-100.0, -100.0), (-100.0, 100.0), (100.0, 100.0)])
def test_a_weighting_is_chosen_by_facts_that_weights_were_not_fitted_to(monkeypatch, hardly, clearly):
    monkeypatch.setattr(optimiser, "LEAST_FACTS", 5)
    monkeypatch.setattr(optimiser, "HARDLY", hardly)
    monkeypatch.setattr(optimiser, "CLEARLY", clearly)
    mixture, spec = Mixture(exact("bert"), usable("bert")[:3], paper_spec(weighting="auto")), TrainingSpec(**WEIGHTS)
    gold, certainty = asked(mixture)
    encoded, _ = mixture.encode(FACTS)
    with torch.no_grad():
        of_x = mixture.log_p_x(encoded.xs, encoded.rows).numpy()
    choose_tuned(mixture, spec)
    start = mixture.weights.detach().clone()
    is_open = choose_weighting(mixture, mixture.answering(kind=encoded.kind), encoded, spec)
    static, by_x = cross_validated(gold, []), cross_validated(gold, [of_x, certainty])
    assert mixture.spec.weighting_scores == {
        "combined": pytest.approx(by_x.mean(), abs=1e-5), "static": pytest.approx(static.mean(), abs=1e-5),
    }  # fmt: skip
    gain = static - by_x
    error = gain.std(ddof=1) / len(gain) ** 0.5
    is_clear = gain.mean() > clearly * error
    assert is_open == (not is_clear and gain.mean() > hardly * error)
    assert mixture.spec.weighting == ("combined" if is_clear else "static")
    assert is_clear == (clearly < 0)
    assert torch.equal(mixture.weights.detach(), start), "nothing is fitted yet"
    assert mixture.temperature is None


@pytest.mark.parametrize(("is_open", "read"), [([False], [1]), ([True, True], [1, 2]), ([True, False], [1, 2])])
def test_more_facts_are_read_where_the_first_leave_a_weighting_open(monkeypatch, is_open, read):
    mixture, lengths = Mixture(exact("bert"), usable("bert"), paper_spec()), []
    encoded, _ = mixture.encode(FACTS)
    assert len(encoded) > 2

    def choose(_mixture, _answers, some, _spec):
        lengths.append(len(some))
        return is_open[len(lengths) - 1]

    monkeypatch.setattr(loop, "choose_weighting", choose)
    monkeypatch.setattr(loop, "CHOSEN_PAIRS", (1, 2))
    monkeypatch.setattr(loop, "facts_to_fit", lambda _prompts, pairs: pairs)
    loop.choose_for_run(mixture, mixture.answering(kind=encoded.kind), encoded, TrainingSpec())
    assert lengths == read


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


def weighed_by_length(numbers, start, gold, certainty, of_blanks, lengths):
    """The loss of c and, behind them, β, with facts that count as much as their best prompt finds y probable, and each
    number held at its start by a hundredth of a fact's weight."""
    scores = numbers[:-1] + numbers[-1] * of_blanks
    by_length = np.exp(scores - logsumexp(scores, axis=2, keepdims=True))
    # What speaks for a prompt by one blank is multiplied by what speaks for it by all lengths together.
    weights = np.exp((0 if certainty is None else certainty + logsumexp(scores, axis=2)) + np.zeros(gold.shape))
    weights /= weights.sum(1, keepdims=True)
    facts = np.arange(len(gold))
    found = (weights * gold * by_length[facts, :, lengths - 1]).sum(1)
    return (-gold.max(1) * np.log(found)).mean() + 0.01 * ((numbers - start) ** 2).sum() / 2 / len(gold)


@pytest.mark.parametrize("weighting", ["static", "certainty"])
def test_lengths_are_fitted_and_the_prompts_stay(weighting):
    spec = MixtureSpec(begin="space", lead_in="none", shots=0, answers="any-length", weighting=weighting)
    mixture = Mixture(exact("bert"), usable("bert"), spec)
    before = mixture.vectors.detach().clone()
    mixture.configure_answers(RELATION)
    encoded = mixture.encode_relation(RELATION).split("train")
    answers = mixture.answering()
    choose_tuned(mixture, TrainingSpec(**WEIGHTS))
    assert mixture.lengths is not None
    start = np.array([*mixture.lengths.initial, 0.0])
    with torch.no_grad():
        asked = (mixture.tuned, encoded.xs, encoded.rows)
        gold = mixture.long_answers.log_probs(*asked[:2], encoded.ys, encoded.rows).exp().numpy()
        of_blanks = mixture.long_answers.certainty_of_blanks(*asked, len(start) - 1).numpy()
        certainty = mixture.pairs.certainty(*asked).numpy() if weighting == "certainty" else None
    lengths = encoded.ys.lengths[0].numpy()
    reached = fit_lengths(answers, encoded)
    assert torch.equal(mixture.vectors, before)
    assert torch.equal(mixture.weights, torch.full_like(mixture.weights, 1 / len(mixture.prompts)))
    found = np.array([*mixture.lengths.logits.tolist(), mixture.lengths.slope.item()])
    known = (start, gold, certainty, of_blanks, lengths)
    best = minimize(weighed_by_length, start, args=known, tol=1e-12)
    assert weighed_by_length(found, *known) == pytest.approx(best.fun, rel=1e-4)
    assert best.fun < weighed_by_length(start, *known) * 0.95
    with torch.no_grad():  # read again, not from what was kept
        total = answers.likelihood(encoded, encoded.rows).total.numpy()
    assert (-total * gold.max(1)).mean() == pytest.approx(reached, rel=1e-6)


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


def test_tuned_prompts_are_kept_only_if_they_clearly_beat_fitted_weights():
    before, now = [3.0, 1.0, 2.0, math.inf, 4.0], [1.0, 1.5, 0.0, 2.0, 1.0]
    gains = np.array([2.0, -0.5, 2.0, 3.0])  # the fact that was impossible tells nothing
    assert gain_over(before, now) == pytest.approx([gains.mean(), gains.std(ddof=1) / 2])
    assert gain_over(before, now[1:]) is None  # a search was cut
    dev = {"P@1": 50.0, "log_loss": 2.0, "facts": 40}
    fitted, better = HistoryLine(1, 0, None, dev, 4.0), {**dev, "P@1": 60.0, "log_loss": 1.5}
    for kept_by in ("P@1", "near-best", "log-loss"):
        for gain, kept in ([0.5, 0.26], 1), ([0.5, 0.24], 2), (None, 2):
            lines = [fitted, HistoryLine(2, 400, 2.0, better, 4.0, gain=gain)]
            assert best_of(lines, kept_by).round == kept
            assert [line.round for line in may_be_kept(lines, kept_by)] == [kept]


@pytest.mark.parametrize(("weighting", "keep", "has_to_beat"), [
    ("certainty", None, True), ("certainty", "log-loss", False), ("static", None, False),
])  # fmt: skip
def test_fitted_weights_have_to_be_beaten_where_they_depend_on_x(weighting, keep, has_to_beat):
    mixture = Mixture(exact("bert"), usable("bert"), paper_spec(weighting=weighting))
    losses = []

    def note(progress):
        if progress.record is not None:
            encoded = mixture.encode_relation(CAPITALS).split("dev")
            total = mixture.answering(kind=encoded.kind).likelihood(encoded, encoded.rows).total
            losses.append(-total.detach().numpy())

    result = train(mixture, CAPITALS, epochs=2, keep=keep, threads=1, progress=note)
    steps = result.history[2:]
    assert steps
    assert all((line.gain is not None) == has_to_beat for line in steps)
    assert all(line.gain is None for line in result.history[:2])
    if has_to_beat:  # the fitted state is what is told first
        for line, now in zip(steps, losses[1:], strict=True):
            assert line.gain is not None
            assert line.gain[0] == pytest.approx((losses[0] - now).mean(), abs=1e-4)
