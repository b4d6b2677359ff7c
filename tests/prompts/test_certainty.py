"""Prompts weighed by how certain each is of its answer, against the public models' own forward passes."""

import pytest
import torch
from agreement import Twin, exact, ids, log_temperature_of, moved, usable, words
from builders.specs import paper_spec
from builders.worlds import PAIRS, TEMPLATES, frozen

from askwell.answers.candidate_answers import CandidateAnswers
from askwell.answers.candidates import Candidates
from askwell.answers.one_token import OneTokenAnswers
from askwell.data.facts import Fact, Relation
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import AnswerKind
from askwell.specs.training_spec import TrainingSpec
from askwell.training.loop import train

NAMES = ["bert", "albert", "bart", "llama-metaspace"]
XS = ["Paris", "Mary Cassatt", "Reykjavik"]
CERTAIN = paper_spec(weighting="certainty")


def expected_weights(twin, x, temperature, among=None):
    """p(t | r) exp(-H/T), normalised: H from each prompt's own distribution, over the vocabulary or some tokens."""
    terms = []
    for number, logit in enumerate(twin.weight_logits.log_softmax(0)):
        log_probs = twin.log_p_y(number, x).detach()
        if among is not None:
            log_probs = log_probs[among] - log_probs[among].logsumexp(0)
        probabilities = log_probs.exp()
        entropy = -sum(float(p * p.log()) for p in probabilities if p > 0)
        terms.append(float(logit.detach()) - entropy / temperature)
    return torch.tensor(terms, dtype=torch.float64).softmax(0)


def mixed(twin, x, weights):
    """p(y | x, r) over the vocabulary."""
    each = [twin.log_p_y(number, x).detach().exp() for number in range(len(weights))]
    return sum(weight * one for weight, one in zip(weights, each, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_weights_and_answers_are_those_of_the_definition(name):
    templates = usable(name)
    mixture = moved(exact(name), templates, CERTAIN)
    twin = Twin.of(name, templates, mixture)
    temperature = float(log_temperature_of(mixture).detach().exp())
    xs, rows = words(exact(name), XS)
    weights = mixture.log_weights_for(xs, rows).exp()
    log_probs = OneTokenAnswers(mixture).log_probs(xs, rows)
    for row, x in enumerate(XS):
        expected = expected_weights(twin, x, temperature)
        torch.testing.assert_close(weights[row].detach(), expected, rtol=1e-7, atol=1e-9)
        if len(mixture.token_words.places) == 1:  # answers are then the tokens
            torch.testing.assert_close(log_probs[row].exp(), mixed(twin, x, expected), rtol=1e-6, atol=1e-9)


def test_asking_and_training_use_the_same_weights():
    mixture = moved(exact("bert"), usable("bert"), CERTAIN)
    facts, _ = mixture.encode([Fact("Paris", "Rome"), Fact("Reykjavik", "Italy")])
    total = mixture.answering(kind=facts.kind).likelihood(facts, facts.rows).total.detach().exp()
    for fact, probability in zip(facts.facts, total.tolist(), strict=True):
        replies = {reply.y: reply.probability for reply in mixture.ask(fact.x, top=200)}
        assert replies[fact.y] == pytest.approx(probability, rel=1e-6)


def test_with_a_high_temperature_it_is_the_static_mixture():
    certain = moved(exact("bert"), usable("bert"), CERTAIN)
    static = moved(exact("bert"), usable("bert"), paper_spec())
    static.load_state_dict({k: v for k, v in certain.state_dict().items() if "temperature" not in k})
    log_temperature_of(certain).data.fill_(torch.inf)
    xs, rows = words(exact("bert"), XS)
    torch.testing.assert_close(
        OneTokenAnswers(certain).log_probs(xs, rows), OneTokenAnswers(static).log_probs(xs, rows)
    )


@pytest.mark.parametrize(("other", "switched_off"), [("data-dependent", 1), ("certainty", 0)])
def test_combined_weights_without_one_signal_are_those_of_the_other(other, switched_off):
    combined = moved(exact("bert"), usable("bert"), paper_spec(weighting="combined"))
    alone = moved(exact("bert"), usable("bert"), paper_spec(weighting=other))
    temperatures = log_temperature_of(combined)
    alone.load_state_dict(
        combined.state_dict() | {"weighting.log_temperature": temperatures[1 - switched_off].detach()}
    )
    temperatures.data[switched_off] = torch.inf
    xs, rows = words(exact("bert"), XS)
    torch.testing.assert_close(
        OneTokenAnswers(combined).log_probs(xs, rows), OneTokenAnswers(alone).log_probs(xs, rows)
    )


@pytest.mark.parametrize("strategy", ["one-token", "any-length"])
def test_among_candidates_certainty_is_that_about_candidates(strategy):
    names = ["Rome", "Italy", "Oslo"]
    mixture = moved(exact("bert"), usable("bert"), CERTAIN)
    twin = Twin.of("bert", usable("bert"), mixture)
    among = [ids("bert", name)[0] for name in names]
    candidates = Candidates("three", tuple(names))
    kind = AnswerKind(any_length=True, longest=1, log_lengths=(0.0,))
    answers = (
        OneTokenAnswers(mixture, candidates) if strategy == "one-token" else CandidateAnswers(mixture, candidates, kind)
    )
    found = {reply.y: reply.probability for reply in next(iter(answers.ask(["Paris"])))}
    weights = expected_weights(twin, "Paris", float(log_temperature_of(mixture).detach().exp()), among)
    expected = mixed(twin, "Paris", weights)[among]
    expected = expected / expected.sum()
    assert [found[name] for name in names] == pytest.approx(expected.tolist(), rel=1e-6)
    xs, rows = words(exact("bert"), ["Paris"])
    of_all = answers.log_probs(xs, rows)[0].softmax(0)
    assert sorted(of_all.tolist()) == pytest.approx(sorted(expected.tolist()), rel=1e-6)


def test_training_tunes_the_temperature_and_saving_keeps_it(tmp_path):
    facts = [Fact(x, y) for x, y in PAIRS]
    relation = Relation.of("capitals", facts, facts, facts)
    mixture = Mixture(frozen("bert"), TEMPLATES, weighting="certainty", answers="one-token")
    train(mixture, relation, TrainingSpec(recipe="cycle", pairs=96, keep="log-loss"))
    assert mixture.temperature != 1.0
    mixture.save_pretrained(tmp_path)
    again = Mixture.from_pretrained(tmp_path, lm=frozen("bert"))
    assert again.temperature == mixture.temperature
    assert again.ask("Paris") == mixture.ask("Paris")
