"""Prompts weighed by a learned gate, against the public models' own hidden states."""

import pytest
import torch
from agreement import exact, moved, usable, words
from builders.specs import paper_spec
from builders.worlds import PAIRS, TEMPLATES, frozen

from askwell.answers.candidates import Candidates
from askwell.answers.one_token import OneTokenAnswers
from askwell.data.facts import Fact, Relation
from askwell.evaluation.projection import project
from askwell.mixture.mixture import Mixture
from askwell.prompts.weights import GateWeights
from askwell.specs.training_spec import TrainingSpec
from askwell.training.loop import train
from askwell.training.optimiser import choose_tuned, optimizer_of, rates_of, step

NAMES = ["bert", "albert", "bart", "llama-metaspace"]
XS = ["Paris", "Mary Cassatt", "Reykjavik", "Rome", "Oslo"]
GATE = paper_spec(weighting="gate")


def mean_state(lm, x):
    """The mean over x's tokens of the hidden state two thirds up, from the public model alone."""
    own, _ = words(lm, [x])
    tokens = own.ids[0, 0, : own.lengths[0, 0]].tolist()
    before, after = lm.wording.prefix or [lm.special.text_start], lm.wording.suffix
    ids = torch.tensor([[*before, *tokens, *after]])
    with torch.no_grad():
        output = lm.model(input_ids=ids, output_hidden_states=True)
    states = output.encoder_hidden_states if lm.family.name == "seq2seq" else output.hidden_states
    layer = round((len(states) - 1) * 2 / 3)  # the first are the word vectors
    return states[layer][0, len(before) : len(before) + len(tokens)].mean(0).double()


def gate_of(mixture):
    """u."""
    assert isinstance(mixture.weighting, GateWeights)
    return mixture.weighting.gate


def fitted(name, *, size=1.0):
    mixture = moved(exact(name), usable(name), GATE)
    assert mixture.representation is not None
    mixture.representation.fit(words(exact(name), XS)[0])
    gate_of(mixture).data.mul_(size)
    return mixture


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_those_of_the_definition(name):
    mixture = fitted(name)
    states = torch.stack([mean_state(exact(name), x) for x in XS])
    standardised = (states - states.mean(0)) / states.std(0, correction=0)
    # By eigenvectors of the covariance: five x's have at most four directions.
    sizes, axes = torch.linalg.eigh(standardised.T @ standardised)
    axes = axes[:, sizes.argsort(descending=True)[:4]]
    axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    f = standardised @ axes
    xs, rows = words(exact(name), XS)
    torch.testing.assert_close(mixture.representation(xs, rows)[:, :4], f, rtol=1e-4, atol=1e-5)
    assert not mixture.representation(xs, rows)[:, 4:].any()
    scores = mixture.weight_logits.detach().log_softmax(0) + f @ gate_of(mixture).detach()[:, :4].T
    expected = scores.exp() / scores.exp().sum(1, keepdim=True)
    torch.testing.assert_close(mixture.log_weights_for(xs, rows).exp().detach(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_without_u_it_is_the_static_mixture(name):
    gated, static = fitted(name, size=0.0), moved(exact(name), usable(name), paper_spec())
    shared = {key: value for key, value in gated.state_dict().items() if key in static.state_dict()}
    static.load_state_dict(shared)
    xs, rows = words(exact(name), XS)
    torch.testing.assert_close(OneTokenAnswers(gated).log_probs(xs, rows), OneTokenAnswers(static).log_probs(xs, rows))


def test_every_x_is_read_once(monkeypatch):
    mixture = fitted("bert")
    xs, rows = words(exact("bert"), [*XS, "Paris", "Italy"])
    read = []
    reader = mixture.representation._read
    monkeypatch.setattr(mixture.representation, "_read", lambda tokens: read.append(tokens) or reader(tokens))
    first = mixture.representation(xs, rows)
    assert len(read) == 1  # Italy: the others were read when the directions were fitted
    torch.testing.assert_close(mixture.representation(xs, rows), first, rtol=0, atol=0)
    assert len(read) == 1


def test_gates_decay_where_facts_say_nothing():
    mixture = fitted("bert")
    facts, _ = mixture.encode([Fact("Paris", "Rome")])
    spec = TrainingSpec(tune_vectors=False)
    choose_tuned(mixture, spec)
    optimizer = optimizer_of(mixture, spec, rates_of(mixture, facts, spec))
    assert optimizer is not None
    before = gate_of(mixture).detach().abs().sum()
    logits = mixture.weight_logits.detach().clone()
    step(optimizer, 0.01)  # no gradient but that of the decay
    assert gate_of(mixture).detach().abs().sum() < before
    torch.testing.assert_close(mixture.weight_logits.detach(), logits, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["one-token", "any-length", "candidates"])
@pytest.mark.parametrize("method", ["gradient", "em"])
def test_training_tunes_the_gate_and_saving_keeps_it(kind, method, tmp_path):
    facts = [Fact(x, y) for x, y in PAIRS]
    relation = Relation.of("capitals", facts, facts, facts)
    candidates = Candidates("ys", tuple(sorted({y for _, y in PAIRS}))) if kind == "candidates" else None
    answers = "one-token" if kind == "one-token" else "any-length"
    mixture = Mixture(frozen("bert"), TEMPLATES, weighting="gate", answers=answers)
    spec = TrainingSpec(recipe="cycle", pairs=96, keep="log-loss", method=method)
    train(mixture, relation, spec, candidates=candidates)
    assert gate_of(mixture).any()
    mixture.save_pretrained(tmp_path)
    again = Mixture.from_pretrained(tmp_path, lm=frozen("bert"))
    assert again.ask("Paris") == mixture.ask("Paris")
    behind = [[prompt.weight for prompt in mixture.answering(candidates).prompts_behind(x)] for x in ("Paris", "Rome")]
    assert behind[0] != behind[1]


def test_words_nearest_to_gated_prompts_keep_the_gate():
    mixture = fitted("bert")
    xs, rows = words(exact("bert"), XS)
    torch.testing.assert_close(project(mixture).log_weights_for(xs, rows), mixture.log_weights_for(xs, rows))
