"""The product of experts over answers of any length agrees with a plain loop over the public model's forward passes."""

import math
from dataclasses import replace

import pytest
import torch
from agreement import GLUED_Y, Twin, exact, ids, words
from builders import tiny
from enumeration import (
    KEPT,
    LONGEST,
    ONE_OF_EACH,
    SAME_END,
    TEMPLATES,
    every_product,
    lengths_by_hand,
    log_product,
    mean_of,
    spellings,
    spelt_with,
)

from askwell.answers.answer_search import AnswerSearch
from askwell.answers.encode import encode_facts
from askwell.answers.likelihood import likelihood
from askwell.answers.search import SearchLimits
from askwell.data.facts import Fact, Relation
from askwell.errors import BadOption
from askwell.evaluation.examine import evaluate_split
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import AnswerKind, MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training.loop import train

FACTS = [Fact("Paris", "Rome"), Fact("Mary Cassatt", "Rome Cassatt"), Fact("Reykjavik", "Cassatt")]
COUNTS = (1, 1, 1)
LIMITS = SearchLimits(answers=8, tokens=LONGEST)


def product_of(name: str, templates: list[str]) -> tuple[Mixture, Twin, list[float]]:
    """A product with unequal exponents over hard prompts, its copy, and a masked LM's log p(m | r)."""
    spec = MixtureSpec(combine="product", answers="any-length", longest_answer=LONGEST)
    mixture = Mixture(exact(name), templates, spec)
    with torch.no_grad():
        mixture.weight_logits.copy_(torch.tensor([0.4, -0.5], dtype=torch.float64))
    spelt_with(mixture, ids(name, KEPT["wordpiece" if name == "bert" else "byte-level"]))
    log_lengths = lengths_by_hand(COUNTS) if tiny.FAMILY[name] == "masked" else []
    return mixture, Twin.of(name, templates, mixture), log_lengths


@pytest.mark.parametrize("templates", [TEMPLATES, SAME_END], ids=["other ends", "one end"])
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_the_likelihood_and_its_gradient_into_the_weights(name, templates):
    mixture, twin, log_lengths = product_of(name, templates)
    encoded, left_out = mixture.encode(FACTS)
    assert not left_out
    ours = likelihood(mixture, encoded, torch.arange(len(FACTS))).total
    ours.sum().backward()
    logits = mixture.weight_logits.detach().clone().requires_grad_()
    expected = torch.stack(
        [log_product(twin, logits.softmax(0), f.x, spellings(name)[f.y], log_lengths) for f in encoded.facts]
    )
    expected.sum().backward()
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-9)
    assert logits.grad is not None
    assert logits.grad.abs().max() > 1e-3
    torch.testing.assert_close(mixture.weight_logits.grad, logits.grad, rtol=0, atol=1e-7)
    assert mixture.vectors.grad is None, "prompts stay hard"


def test_one_token_answers_give_the_one_token_product():
    mixture, _, _ = product_of("bert", TEMPLATES)
    one_token = Mixture(exact("bert"), TEMPLATES, MixtureSpec(combine="product", answers="one-token"))
    one_token.load_state_dict(mixture.state_dict())
    facts = [Fact("Paris", "Rome"), Fact("Mary Cassatt", "Cass")]
    every = torch.arange(2)
    expected = likelihood(one_token, one_token.encode(facts)[0], every).total
    encoded, _ = encode_facts(mixture, facts, AnswerKind(any_length=True, longest=3, log_lengths=(0.0,)))
    as_steps = replace(encoded, kind=replace(encoded.kind, log_lengths=(0.0, -math.inf)))
    by_steps = likelihood(mixture, as_steps, every).total
    torch.testing.assert_close(by_steps, expected, rtol=0, atol=1e-12)
    assert torch.equal(likelihood(mixture, encoded, every).total, expected)


@pytest.mark.parametrize(("name", "templates"), [("bert", TEMPLATES), ("gpt2", TEMPLATES), ("gpt2", SAME_END)])
def test_the_search_finds_what_enumeration_finds(name, templates):
    mixture, twin, log_lengths = product_of(name, templates)
    kind = AnswerKind(any_length=True, longest=LONGEST, log_lengths=tuple(log_lengths))
    search = AnswerSearch(mixture, LIMITS, kind)
    names = ["Paris", "Mary Cassatt"]
    xs, questions = words(mixture.lm, names)
    every = [every_product(twin, mixture.weights, x, log_lengths) for x in names]
    together = search.best(xs, questions[None])
    for found, expected in zip([*search.best(xs, questions), *together], [*every, mean_of(every)], strict=True):
        assert found.is_exact
        assert [answer.text for answer in found.answers] == list(expected)[:8]
        of_answers = [answer.log_probability for answer in found.answers]
        assert of_answers == pytest.approx(list(expected.values())[:8], abs=1e-9)
    y = list(every[0])[4]
    (better,) = search.at_least(xs, questions[:1], [every[0][y] - 1e-9])
    assert [answer.text for answer in better.answers] == list(every[0])[:5]


def test_a_product_is_evaluated_and_tuned():
    mixture, twin, log_lengths = product_of("gpt2", TEMPLATES)
    relation = Relation.of("r", FACTS, FACTS[:1], FACTS[1:2])
    (outcome,) = evaluate_split(mixture, relation).outcomes
    expected = log_product(twin, mixture.weights.detach(), outcome.x, spellings("gpt2")[outcome.y], log_lengths)
    assert outcome.log_probability == pytest.approx(float(expected), abs=1e-9)
    result = train(mixture, relation, TrainingSpec(recipe="paper", epochs=8, learning_rate=0.3, threads=1))
    losses = [line.train_loss for line in result.history if line.train_loss is not None]
    assert losses[-1] < losses[0]


def test_prompts_that_need_two_forms_of_y_are_refused():
    spec = MixtureSpec(combine="product", answers="any-length")
    mixture = Mixture(exact("gpt2"), [TEMPLATES[0], GLUED_Y], spec)
    encoded, _ = mixture.encode(FACTS)
    sentence = "needs prompts that write y in one form, either after a space or glued"
    with pytest.raises(BadOption, match=sentence):
        likelihood(mixture, encoded, torch.arange(1))
    with pytest.raises(BadOption, match=sentence):
        mixture.ask("Paris")
    with pytest.raises(BadOption, match=sentence):
        evaluate_split(mixture, Relation.of("r", FACTS, FACTS, FACTS))
