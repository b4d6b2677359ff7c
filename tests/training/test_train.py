"""Training finds the optimum, keeps the best state, and tunes only what it should."""

import json
import math
import os
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from agreement import exact
from builders.specs import paper_spec
from builders.worlds import CAPITALS, FACTS, REPEATED, TEMPLATES, frozen
from scipy.optimize import minimize

from askwell.answers.one_token import OneTokenAnswers
from askwell.data.facts import Fact, Relation
from askwell.errors import BadOption, NotFinite, NothingLeft
from askwell.mixture.mixture import Mixture
from askwell.specs.training_spec import TrainingSpec
from askwell.training.history import HistoryLine
from askwell.training.loop import Objective, train
from askwell.training.optimiser import choose_tuned, optimizer_of, rates_of
from askwell.training.schedule import schedule_of

FULL = bool(os.environ.get("ASKWELL_TEST_FULL"))
ONE_THREAD: dict[str, Any] = {"threads": 1}


def no_early_stop(**settings):
    choices: dict[str, Any] = {"recipe": "paper", "patience": 10_000, **ONE_THREAD} | settings
    return TrainingSpec(**choices)


def gold_matrix(mixture, facts=FACTS):
    """p(y | t, x) of every fact and prompt, read off the whole distributions one fact at a time."""
    encoded, _ = mixture.encode(facts)
    matrix = torch.stack(
        [
            torch.stack(
                [
                    mixture.word_log_probs(encoded.xs, torch.tensor([i]), t)[0, encoded.answers[i]]
                    for i in range(len(encoded))
                ]
            )
            for t in range(len(mixture.prompts))
        ],
        dim=1,
    )
    return matrix.exp().detach().numpy()


def best_mean_log_likelihood(probabilities):
    """The optimum over mixture weights by a direct solve; the problem is concave in the weights."""

    def loss(logits):
        weights = np.exp(logits - logits.max())
        weights /= weights.sum()
        return -np.log(probabilities @ weights).mean()

    starts = [np.zeros(probabilities.shape[1]), *np.eye(probabilities.shape[1])]
    return -min(minimize(loss, start, tol=1e-14).fun for start in starts)


def mean_log_likelihood(mixture, probabilities):
    return np.log(probabilities @ mixture.weights.detach().numpy()).mean()


OPTIMA = [("bert", "gradient"), ("bart", "em"), ("gpt2", "em")]


@pytest.mark.parametrize(
    ("name", "method"), list(product(["bert", "bart", "gpt2"], ["gradient", "em"])) if FULL else OPTIMA
)
def test_both_methods_find_the_optimal_weights_of_frozen_prompts(name, method):
    mixture = Mixture(frozen(name, "float64"), TEMPLATES, paper_spec())
    probabilities = gold_matrix(mixture)
    everything = REPEATED
    settings = {"method": method, "tune_vectors": False, "epochs": 150, "learning_rate": 0.3}
    train(mixture, everything, no_early_stop(**settings))
    assert mean_log_likelihood(mixture, probabilities) == pytest.approx(
        best_mean_log_likelihood(probabilities), abs=2e-4
    )


def test_em_never_lowers_the_likelihood_of_frozen_prompts():
    mixture = Mixture(frozen("roberta", "float64"), TEMPLATES, paper_spec())
    result = train(mixture, CAPITALS, no_early_stop(method="em", tune_vectors=False, epochs=30))
    losses = [line.train_loss or math.inf for line in result.history[1:]]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(losses))
    assert losses[-1] < losses[0] - 1e-3


def test_em_weights_are_the_mean_posterior_computed_by_hand():
    mixture = Mixture(frozen("bert", "float64"), TEMPLATES, paper_spec())
    probabilities = gold_matrix(mixture)
    posterior = probabilities / probabilities.sum(1, keepdims=True)  # from uniform weights
    settings = TrainingSpec(recipe="paper", method="em", tune_vectors=False, epochs=1, **ONE_THREAD)
    dev_is_train = REPEATED
    train(mixture, dev_is_train, settings)
    assert mixture.weights.detach().numpy() == pytest.approx(posterior.mean(0), abs=1e-12)


@pytest.mark.parametrize(("deep", "weighting"), list(product([False, True], ["static", "data-dependent"])))
def test_em_and_gradient_take_the_same_step_on_the_prompts(deep, weighting):
    """The gradient of the expected log-likelihood under the posteriors is that of the log-likelihood itself."""
    gradients = []
    for method in ("gradient", "em"):
        mixture = Mixture(frozen("bart", "float64"), TEMPLATES, paper_spec(deep=deep, weighting=weighting))
        encoded, _ = mixture.encode(FACTS)
        choose_tuned(mixture, TrainingSpec(method=method))
        Objective(mixture.answering(kind=encoded.kind), encoded, method).loss(
            torch.arange(len(encoded))
        ).to_minimise.backward()
        gradients.append({name: p.grad for name, p in mixture.named_parameters() if p.grad is not None})
    of_weights = {"weighting.logits", "weighting.log_temperature"} if weighting == "data-dependent" else set()
    assert {"vectors"} | of_weights <= set(gradients[1])
    for name in set(gradients[1]) - ({"weighting.logits"} if weighting == "static" else set()):
        torch.testing.assert_close(gradients[0][name], gradients[1][name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["bert", "bart", "llama"])
def test_facts_may_be_cut_into_chunks_without_changing_the_gradient(name):
    # Llama's norms compute in float32, where what is read in other batches may round in another way.
    mixture = Mixture(exact(name), TEMPLATES, paper_spec(deep=True))
    encoded, _ = mixture.encode(FACTS)
    choose_tuned(mixture, TrainingSpec())
    objective = Objective(mixture.answering(kind=encoded.kind), encoded, "gradient")
    gradients = []
    for size in (1, 3, len(encoded)):
        mixture.zero_grad()
        for chunk in torch.arange(len(encoded)).split(size):
            objective.loss(chunk).to_minimise.backward()
        assert mixture.vectors.grad is not None
        gradients.append(mixture.vectors.grad.clone())
    torch.testing.assert_close(gradients[0], gradients[2], rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(gradients[1], gradients[2], rtol=1e-6, atol=1e-9)


def test_training_makes_the_loss_smaller_and_keeps_the_state_that_was_best_on_dev():
    mixture = Mixture(frozen("bert"), TEMPLATES, paper_spec(deep=True))
    seen = []
    result = train(mixture, CAPITALS, no_early_stop(learning_rate=0.02, epochs=12), progress=seen.append)
    losses = [line.train_loss or math.inf for line in result.history[1:]]
    assert losses[-1] < losses[0] - 1
    ranked = sorted(result.history, key=lambda line: (-line.dev["P@1"], line.dev["log_loss"]))
    assert result.best == ranked[0]
    encoded, _ = mixture.encode(CAPITALS.dev)
    log_probs = OneTokenAnswers(mixture).log_probs(encoded.xs, torch.arange(len(encoded)))
    dev_loss = -log_probs.gather(1, encoded.answers[:, None]).mean()
    assert float(dev_loss) == pytest.approx(result.best.dev["log_loss"], abs=1e-5)
    assert [state.record.round for state in seen if state.record] == list(range(13))


def test_the_untuned_state_is_a_candidate():
    mixture = Mixture(frozen("bert"), TEMPLATES, paper_spec(deep=True))
    start = {name: tensor.clone() for name, tensor in mixture.state_dict().items()}
    # On dev the untuned mixture is right by construction, and train teaches something else.
    dev = [Fact(x, mixture.ask(x, top=1)[0].y) for x in ("Quito", "Oslo", "Havana")]
    spec = TrainingSpec(recipe="paper", learning_rate=1.0, epochs=3, **ONE_THREAD)
    result = train(mixture, Relation.of("its own", FACTS, dev, []), spec)
    assert result.history[0].dev["P@1"] == 100.0
    assert result.history[-1].dev["P@1"] < 100.0
    assert result.best.round == 0
    assert all(torch.equal(tensor, start[name]) for name, tensor in mixture.state_dict().items())


def test_early_stop_counts_epochs_since_the_best():
    def is_over_after(*scores, **settings):
        lines = [
            HistoryLine(n, 10 * n, None, {"P@1": score, "log_loss": loss}, 2.0)
            for n, (score, loss) in enumerate(scores)
        ]
        schedule = schedule_of(TrainingSpec(recipe="paper", **settings), fact_count=10, dev_facts=5, prompts=2, seed=0)
        return schedule.is_over(len(lines) - 1, lines)

    two = [(10.0, 3.0), (10.0, 2.0)]
    assert not is_over_after(*two, patience=2)
    assert not is_over_after(*two, (10.0, 2.0), patience=2), "an equal score is not better, but one is no reason"
    assert is_over_after(*two, (10.0, 2.0), (0.0, 1.0), patience=2)
    assert not is_over_after(*two, (10.0, 1.9), (0.0, 1.0), patience=2), "a lower log-loss breaks the tie"
    assert is_over_after(*two, epochs=1)
    assert not is_over_after(*two, *[(0.0, 9.0)] * 3)
    assert is_over_after(*two, *[(0.0, 9.0)] * 4), "the paper's patience is 4"


FREEZABLE = {
    "tune_vectors": ["vectors"],
    "tune_layers": ["deltas.encoder.0", "deltas.encoder.1", "deltas.decoder.0", "deltas.decoder.1", "deltas.decoder.2"],
    "tune_weights": ["weighting.logits"],
    "tune_temperature": ["weighting.log_temperature"],
}


@pytest.mark.parametrize("method", ["gradient", "em"])
@pytest.mark.parametrize("tuned", list(FREEZABLE))
def test_each_part_can_be_tuned_alone(tuned, method):
    mixture = Mixture(frozen("bart"), TEMPLATES, paper_spec(deep=True, weighting="data-dependent"))
    start = {name: parameter.detach().clone() for name, parameter in mixture.named_parameters()}
    flags: dict[str, Any] = {name: name == tuned for name in FREEZABLE}
    spec = TrainingSpec(method=method, learning_rate=0.01, **flags)
    choose_tuned(mixture, spec)
    encoded, _ = mixture.encode(FACTS)
    optimizer = optimizer_of(mixture, spec, rates_of(mixture, encoded, spec))
    assert optimizer is not None
    Objective(mixture.answering(kind=encoded.kind), encoded, method).loss(
        torch.arange(len(encoded))
    ).to_minimise.backward()
    optimizer.step()
    moved = {name for name, parameter in mixture.named_parameters() if not torch.equal(parameter, start[name])}
    assert moved == set(FREEZABLE[tuned])


def test_the_last_layers_perturbation_moves_only_where_it_reaches_y():
    masked = Mixture(frozen("bert"), ["[X] lies in [Y] ."], paper_spec(deep=True))
    causal = Mixture(frozen("gpt2"), ["the [X] lies in [Y] ."], paper_spec(deep=True, begin="space"))
    seq2seq = Mixture(frozen("bart"), ["the [X] lies in [Y] ."], paper_spec(deep=True))
    for mixture in (masked, causal, seq2seq):
        train(mixture, CAPITALS, no_early_stop(epochs=3, learning_rate=0.01))
        choose_tuned(mixture, TrainingSpec())
        encoded, _ = mixture.encode(FACTS)
        Objective(mixture.answering(kind=encoded.kind), encoded, "gradient").loss(
            torch.arange(len(encoded))
        ).to_minimise.backward()

    def moved(mixture, stack):
        last = mixture.layer_deltas[stack][-1]
        return [bool(row.any()) for row in (torch.zeros_like(last) if last.grad is None else last.grad)]

    assert moved(masked, "layers") == [False, False, False]  # lies in .
    assert moved(causal, "layers") == [False, False, True]  # the lies in: the last comes before y
    assert moved(seq2seq, "encoder") == [True, True, True, True]
    assert moved(seq2seq, "decoder") == [False, False, True, False]
    assert not masked.layer_deltas["layers"][-1].any()


def test_the_l2_penalty_pulls_back_to_the_start():
    lengths = []
    for l2 in (0.0, 1.0, 1000.0):
        mixture = Mixture(frozen("bert"), TEMPLATES, paper_spec(deep=True))
        choose_tuned(mixture, TrainingSpec())
        train(mixture, REPEATED, no_early_stop(epochs=40, learning_rate=0.01, l2=l2))
        tuned = [mixture.vectors - mixture.initial_vectors, *mixture.deltas.parameters()]
        added = torch.stack([part.square().sum() for part in tuned]).sum()
        lengths.append(float(added.detach()))
    assert lengths[0] > 2 * lengths[1] > 2 * lengths[2]


def test_a_product_learns_its_weights_and_keeps_its_prompts():
    mixture = Mixture(frozen("bert", "float64"), TEMPLATES, paper_spec(combine="product"))
    start = mixture.vectors.detach().clone()
    everything = REPEATED
    encoded, _ = mixture.encode(FACTS)
    tables = np.stack([mixture.word_log_probs(encoded.xs, torch.arange(len(encoded)), t).numpy() for t in range(3)])
    golds = encoded.answers.numpy()

    def loss(logits):
        weights = np.exp(logits - logits.max())
        weights /= weights.sum()
        scores = np.tensordot(weights, tables, axes=1)
        top = scores.max(1, keepdims=True)
        log_total = top[:, 0] + np.log(np.exp(scores - top).sum(1))
        return -(scores[np.arange(len(golds)), golds] - log_total).mean()

    best = min(minimize(loss, start_at, tol=1e-13).fun for start_at in [np.zeros(3), *(4 * np.eye(3))])
    result = train(mixture, everything, no_early_stop(epochs=80, learning_rate=0.1))
    assert torch.equal(mixture.vectors, start)
    assert result.history[-1].train_loss == pytest.approx(best, abs=1e-3)
    assert result.history[1].train_loss == pytest.approx(loss(np.zeros(3)), abs=1e-9)


def test_weights_cannot_depend_on_x_where_no_causal_prompt_has_a_word_before_it():
    lm = frozen("gpt2", "float64")
    blind = Mixture(lm, ["[X] lies in [Y]", "[X] and [Y] ."], paper_spec(weighting="data-dependent"))
    seeing = Mixture(lm, ["[X] lies in [Y]", "the [X] and [Y] ."], paper_spec(weighting="data-dependent"))
    encoded, _ = blind.encode(FACTS)
    every = torch.arange(len(encoded))
    for mixture, alike in ((blind, True), (seeing, False)):
        torch.nn.init.normal_(mixture.vectors)
        assert mixture.finds_every_x_alike is alike
        weights = mixture.weighting(mixture.log_p_x(encoded.xs, every), len(encoded))
        assert bool(torch.allclose(weights, weights[:1].expand_as(weights), atol=1e-9)) is alike
    blind = Mixture(frozen("bert"), ["[X] lies in [Y]", "[X] and [Y] ."], paper_spec())
    assert not blind.finds_every_x_alike


def test_what_cannot_be_is_refused():
    mixture = Mixture(frozen("bert"), TEMPLATES, paper_spec())
    nothing: dict[str, Any] = dict.fromkeys(FREEZABLE, False)
    with pytest.raises(BadOption, match="nothing is tuned"):
        train(mixture, CAPITALS, TrainingSpec(**nothing))
    product_of_experts = Mixture(frozen("bert"), TEMPLATES, paper_spec(combine="product"))
    with pytest.raises(BadOption, match="EM is for mixtures"):
        train(product_of_experts, CAPITALS, TrainingSpec(method="em"))
    strange = Relation.of("strange", [Fact("Paris", "Reykjavik")], [Fact("Rome", "Italy")], [])
    with pytest.raises(NothingLeft, match="train facts of strange left: 1 × y is not one token"):
        train(mixture, strange)


def test_an_lm_that_gives_nan_is_an_error_not_a_score():
    lm = frozen("bert")
    with torch.no_grad():
        lm.model.bert.encoder.layer[1].output.dense.weight[0, 0] = torch.nan
    with pytest.raises(NotFinite, match="bert gives probabilities that are not finite"):
        train(Mixture(lm, TEMPLATES, paper_spec()), CAPITALS)


def test_the_history_is_plain_data():
    mixture = Mixture(frozen("gpt2"), TEMPLATES, paper_spec(weighting="data-dependent"))
    result = train(mixture, CAPITALS, TrainingSpec(recipe="paper", epochs=1, **ONE_THREAD))
    first, second = json.loads(json.dumps([line.as_json() for line in result.history], allow_nan=False))
    assert first["train_loss"] is None
    assert first["temperature"] == 1.0
    assert set(second) == {"round", "pairs", "train_loss", "dev", "effective_prompts", "temperature"}
    assert second["dev"]["facts"] == 2
    assert result.learned_from.training == result.spec
    assert result.spec.threads == 1
