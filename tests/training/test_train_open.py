"""Training on answers of any length: the gradient is the reference's, all kinds of mixtures get better, and a run that
is resumed equals one that was not interrupted."""

from typing import Any

import agreement
import pytest
import reference
import torch
from agreement import Twin, exact, moved
from builders import tiny
from builders.worlds import frozen
from enumeration import ONE_OF_EACH, TEMPLATES, by_prompt, lengths_by_hand, spellings

from askwell.answers.likelihood import gold_log_probs, likelihood
from askwell.data.facts import Fact, Relation
from askwell.evaluation.scoring import score_facts
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training.loop import Objective, train
from askwell.training.optimiser import choose_tuned

FACTS = [Fact("Paris", "Rome"), Fact("Mary Cassatt", "Rome Cassatt"), Fact("Reykjavik", "Cassatt")]
RELATION = Relation.of("r", FACTS, FACTS, FACTS)
# Many of these ys are several tokens: Iceland two, Massachusetts three, Mary Cassatt three.
PAIRS = [("Paris", "Iceland"), ("Rome", "Massachusetts"), ("Lima", "Mary Cassatt"), ("Oslo", "Rome"), ("Quito", "Peru")]
WORLD = Relation.of("world", *([Fact(x, y) for x, y in PAIRS],) * 3)
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gradient": ({}, {}),
    "em": ({}, {"method": "em"}),
    "deep": ({"deep": True}, {}),
    "data-dependent": ({"weighting": "data-dependent"}, {}),
    "data-dependent, em, deep": ({"weighting": "data-dependent", "deep": True}, {"method": "em"}),
}


@pytest.mark.parametrize("method", ["gradient", "em"])
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_the_gradient_of_the_loss_is_the_references(name, method):
    spec = MixtureSpec(deep=True, weighting="data-dependent")
    mixture = moved(exact(name), TEMPLATES, spec)
    twin = Twin.of(name, TEMPLATES, mixture)
    encoded = mixture.encode_relation(RELATION).split("train")
    assert encoded.kind.name == "any-length"
    choose_tuned(mixture, TrainingSpec(method=method))
    loss = Objective(mixture.answering(kind=encoded.kind), encoded, method).loss(torch.arange(len(encoded)))
    loss.to_minimise.backward()
    log_lengths = lengths_by_hand([1, 1, 1]) if tiny.FAMILY[name] == "masked" else ()
    total, posteriors = torch.zeros((), dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for fact in encoded.facts:
        each = by_prompt(twin, fact.x, spellings(name)[fact.y], log_lengths)
        joint = twin.log_weights(fact.x) + each
        total = total - reference.log_mixture(twin.log_weights(fact.x), list(each))
        posteriors += joint.detach().exp() / joint.detach().exp().sum()
    total.backward()
    assert loss.negative_log_likelihood == pytest.approx(float(total.detach()), abs=1e-8)
    torch.testing.assert_close(loss.posteriors, posteriors, rtol=0, atol=1e-9)
    theirs = twin.gradients()
    for parameter, gradient in agreement.gradients(mixture).items():
        torch.testing.assert_close(gradient, theirs[parameter], rtol=0, atol=1e-7)


def test_facts_are_cut_into_chunks_without_changing_the_gradient():
    gradients = []
    for chunks in ([torch.arange(3)], [torch.tensor([2]), torch.tensor([0, 1])]):
        mixture = moved(exact("gpt2"), TEMPLATES, MixtureSpec(deep=True))
        encoded = mixture.encode_relation(RELATION).split("train")
        objective = Objective(mixture.answering(kind=encoded.kind), encoded, "gradient")
        for chunk in chunks:
            objective.loss(chunk).to_minimise.backward()
        gradients.append(agreement.gradients(mixture))
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-9, atol=1e-12)


def log_likelihood(mixture: Mixture) -> float:
    encoded = mixture.encode_relation(WORLD).split("train")
    with torch.no_grad():
        return float(likelihood(mixture, encoded, torch.arange(len(encoded))).total.mean())


CASES = [("bert", "gradient"), ("gpt2", "em"), ("gpt2", "deep"), ("gpt2", "data-dependent")]
CASES += [("bart", "data-dependent, em, deep")]


@pytest.mark.parametrize(("name", "setting"), CASES)
def test_training_makes_the_answers_more_probable(name, setting):
    of_mixture, of_training = SETTINGS[setting]
    mixture = Mixture(frozen(name), TEMPLATES, MixtureSpec.model_validate(of_mixture))
    spec = TrainingSpec(recipe="paper", epochs=4, patience=4, learning_rate=0.03, threads=1, **of_training)
    result = train(mixture, WORLD, spec)
    assert mixture.answer_kind is not None
    assert mixture.answer_kind.name == "any-length"
    assert result.train_facts == len(PAIRS)
    assert not result.left_out["train"]
    losses = [line.train_loss for line in result.history if line.train_loss is not None]
    assert losses[-1] < losses[0] - 0.1
    best = min(result.history, key=lambda line: (-line.dev["P@1"], line.dev["log_loss"]))
    # Dev is train here, and the best state on dev is what is left.
    assert -log_likelihood(mixture) == pytest.approx(best.dev["log_loss"], abs=1e-5)
    encoded = mixture.encode_relation(WORLD).split("dev")
    assert score_facts(mixture.answering(kind=encoded.kind), encoded, WORLD)["P@1"] == best.dev["P@1"]


def test_em_takes_the_mean_posterior_as_weights():
    mixture = Mixture(frozen("gpt2", "float64"), TEMPLATES)
    encoded = mixture.encode_relation(WORLD).split("train")
    with torch.no_grad():
        probabilities = gold_log_probs(mixture, encoded, torch.arange(len(encoded))).exp()
    expected = (probabilities / probabilities.sum(1, keepdim=True)).mean(0)
    train(mixture, WORLD, TrainingSpec(recipe="paper", method="em", tune_vectors=False, epochs=1, threads=1))
    torch.testing.assert_close(mixture.weights.detach(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "stop_at"), [("gpt2", 5), ("bert", 3)])
def test_an_interrupted_run_that_is_resumed_equals_one_that_was_not(tmp_path, name, stop_at):
    lm, spec = frozen(name), TrainingSpec(recipe="paper", epochs=2, learning_rate=0.01, batch_facts=2, threads=1)

    def new_mixture() -> Mixture:
        return Mixture(lm, TEMPLATES, MixtureSpec(deep=True, seed=5))

    calls = []

    def interrupt(progress):
        calls.append(progress)
        if len(calls) > stop_at:
            raise KeyboardInterrupt

    whole, first, second = new_mixture(), new_mixture(), new_mixture()
    expected = train(whole, WORLD, spec)
    with pytest.raises(KeyboardInterrupt):
        train(first, WORLD, spec, folder=tmp_path, progress=interrupt)
    result = train(second, WORLD, spec, folder=tmp_path, resume=True)
    assert result.history == expected.history
    assert second.answer_kind == whole.answer_kind
    states = whole.state_dict(), second.state_dict()
    assert all(torch.equal(tensor, states[1][key]) for key, tensor in states[0].items())
