"""Controls of answers of any length: the majority by hand, priors by enumeration."""

import math

import pytest
from agreement import exact
from enumeration import (
    ONE_OF_EACH,
    enumerated,
    every_answer,
    few_tokens,
    lengths_by_hand,
    mean_of,
    rank_among,
)

from askwell.answers.open import OpenAnswers, OpenPrior
from askwell.data.facts import Fact, Relation
from askwell.evaluation.examine import AskedFacts, examine

COUNTS = (2, 2)


def relation_of(*test: tuple[str, str]) -> Relation:
    """Train asks for Paris twice, and has two ys of one token and two of two tokens."""
    train = [Fact("Paris", "Rome"), Fact("Paris", "Cassatt"), Fact("Cuba", "Cass"), Fact("Cuba", "Rome Cass")]
    return Relation.of("r", train, [Fact("Cuba", "Rome")], [Fact(x, y) for x, y in test])


def test_the_majority_by_hand():
    # Rome Cass 3, Rome 2, Cassatt 1 and Cass 1; a y of five tokens and one that cannot be spelled are passed over.
    ys = ["Rome Cass"] * 3 + ["Rome"] * 2 + ["Cassatt", "Cass"] + ["Rome Rome Rome Rome Rome"] * 4 + ["東京"] * 5
    train = [Fact(f"x{number}", y) for number, y in enumerate(ys)]
    test = [("Paris", "Rome Cass"), ("Oslo", "Rome"), ("Oslo", "Rome Cass"), ("Lima", "Cassatt"), ("Lima", "Romevik")]
    relation = Relation.of("r", train, [Fact("Cuba", "Rome")], [Fact(x, y) for x, y in test])
    mixture, _ = few_tokens("bert")
    asked = AskedFacts(mixture, relation, "test")
    prior = asked.answers.majority(relation)
    assert prior.description == "how often each y occurs in 7 train facts"
    outcomes = {(outcome.x, outcome.y): outcome for outcome in asked.prior_outcomes(prior)}
    assert {fact: (outcome.rank, outcome.raw_rank) for fact, outcome in outcomes.items()} == {
        ("Paris", "Rome Cass"): (1, 1),
        ("Oslo", "Rome"): (1, 2),  # Rome Cass, before it, is right for Oslo, too
        ("Oslo", "Rome Cass"): (1, 1),
        ("Lima", "Cassatt"): (3.5, 3.5),  # as frequent as Cass
        ("Lima", "Romevik"): (math.inf, math.inf),
    }
    best = outcomes["Paris", "Rome Cass"]
    assert best.answers[:2] == ("Rome Cass", "Rome")
    assert best.probabilities == pytest.approx((3 / 7, 2 / 7, 1 / 7, 1 / 7))
    assert best.log_probability == pytest.approx(math.log(3 / 7))
    assert outcomes["Lima", "Romevik"].log_probability == -math.inf


def test_a_relation_whose_train_ys_are_no_answers_has_no_majority():
    train = [Fact("Cuba", "Rome Rome Rome Rome Rome")]
    relation = Relation.of("r", train, [Fact("Cuba", "Rome")], [Fact("Paris", "Cassatt")])
    examined = examine(few_tokens("gpt2")[0], relation, splits=("test",), prompts=False)
    assert {*examined.controls.outcomes} == {"prior"}
    assert examined.controls.missing["majority"] == "no train y of r can be an answer"


@pytest.mark.parametrize(("name", "weighting"), [*((n, "static") for n in ONE_OF_EACH), ("gpt2", "data-dependent")])
def test_the_prior_is_the_mean_answer_to_the_xs_of_train(name, weighting):
    each = [enumerated(name, x, COUNTS, data_dependent=weighting == "data-dependent") for x in ("Cuba", "Paris")]
    expected = mean_of(each)
    ys = [list(expected)[place] for place in (0, 3, -1)]
    relation = relation_of(*(("Mary Cassatt", y) for y in ys))
    mixture, _ = few_tokens(name, weighting=weighting)
    asked = AskedFacts(mixture, relation, "test")
    prior = asked.answers.mean_prior(relation)
    assert isinstance(prior, OpenPrior)
    assert prior.description == "the mean of the answers to all 2 x's of train"
    found = {answer.text: answer.log_probability for answer in prior.found.answers}
    most = min(30, len(expected))
    assert list(found) == list(expected)[:most]
    assert list(found.values()) == pytest.approx(list(expected.values())[:most], abs=1e-9)
    for outcome in asked.prior_outcomes(prior):
        assert outcome.rank == rank_among(expected, outcome.y, [y for y in ys if y != outcome.y])
        assert outcome.raw_rank == rank_among(expected, outcome.y)
        assert outcome.answers == tuple(expected)[:10]
        assert outcome.log_probability == pytest.approx(expected[outcome.y], abs=1e-9)  # also of one after the best


def test_of_many_xs_some_are_drawn_by_the_seed():
    mixture, _ = few_tokens("gpt2")
    relation = relation_of(("Mary Cassatt", "Rome"))
    answers = OpenAnswers(mixture, mixture.encode_relation(relation).kind)
    first_answers = {}
    for seed in range(4):
        prior = answers.mean_prior(relation, seed=seed, most=1)
        assert isinstance(prior, OpenPrior)
        assert prior.description.startswith("the mean of the answers to 1 of the 2 x's of train, drawn with the seed")
        first_answers[seed] = prior.found.answers[0].log_probability
    possible = [next(iter(enumerated("gpt2", x, COUNTS).values())) for x in ("Cuba", "Paris")]
    assert sorted({round(p, 9) for p in first_answers.values()}) == sorted(round(p, 9) for p in possible)


@pytest.mark.parametrize(("name", "weighting"), [("bert", "static"), ("bart", "data-dependent"), ("gpt2", "static")])
def test_x_masked_is_one_mask_token_at_x(name, weighting):
    mixture, twin = few_tokens(name, weighting=weighting)
    kind = mixture.encode_relation(relation_of(("Paris", "Rome"))).kind
    prior = OpenAnswers(mixture, kind).masked_prior()
    if name == "gpt2":
        assert prior is None
        return
    assert isinstance(prior, OpenPrior)
    # Weights that depend on x are left at p(t | r).
    mask = [exact(name).tokenizer.mask_token_id]
    expected = every_answer(twin, "Paris", lengths_by_hand(COUNTS) if name == "bert" else (), x_tokens=mask)
    found = {answer.text: answer.log_probability for answer in prior.found.answers}
    most = min(30, len(expected))
    assert list(found) == list(expected)[:most]
    assert list(found.values()) == pytest.approx(list(expected.values())[:most], abs=1e-9)
