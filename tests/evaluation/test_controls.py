"""Priors against the plain reference, majorities by hand, and the score with the prior divided out."""

import math

import pytest
import reference
import torch
from agreement import Twin, exact, ids, moved, pieces, script, usable
from builders import tiny
from builders.specs import paper_spec
from builders.worlds import CAPITALS, TEMPLATES, frozen

from askwell.answers import listed
from askwell.answers.candidates import Candidates
from askwell.answers.listed import ListedPrior
from askwell.answers.one_token import OneTokenAnswers
from askwell.data.facts import Fact, Relation
from askwell.errors import NothingLeft
from askwell.evaluation.examine import AskedFacts, evaluate_split, examine
from askwell.evaluation.knowledge import (
    MAJORITY,
    PRIOR,
    PRIOR_CORRECTED,
    PRIOR_MASKED_X,
)
from askwell.mixture.mixture import Mixture

# Paris stands twice in train as an x, and Reykjavik has golds in all splits.
RELATION = Relation.of(
    "P36",
    train=[Fact("Reykjavik", "Rome"), Fact("Paris", "Lima"), Fact("Paris", "Rome")],
    dev=[Fact("Reykjavik", "Oslo")],
    test=[Fact("Reykjavik", "Italy"), Fact("Reykjavik", "Massachusetts"), Fact("Mary Cassatt", "Paris")],
)
ASKED = [("Mary Cassatt", "Paris", []), ("Reykjavik", "Italy", ["Rome", "Oslo"])]
SPECS = {"static": paper_spec(deep=True), "data-dependent": paper_spec(weighting="data-dependent")}


def token(name, word):
    return ids(name, {"wordpiece": word, "byte-level": f"Ġ{word}", "albert": f"▁{word.lower()}"}[script(name)])[0]


def mixture_and_twin(name, kind):
    mixture = moved(exact(name), usable(name), SPECS[kind])
    return mixture, Twin.of(name, usable(name), mixture)


def corrected(prior, mixture, relation, split="test", candidates=None, top=10):
    """The corrected outcomes of all facts of a split."""
    asked = AskedFacts(mixture, relation, split, candidates)
    return [outcome for rows in asked.batches() for outcome in asked.ask(rows, top, prior=prior)[1]]


def mean_answer(twin, kind, xs=("Paris", "Reykjavik")):
    each = [twin.log_mixture(x, data_dependent=kind == "data-dependent").exp() for x in xs]
    return (sum(each) / len(each)).detach()


@pytest.mark.parametrize("at_once", [1, 2**23])
@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("name", ["bert", "albert", "bart", "llama"])
def test_the_prior_is_the_mean_answer_to_the_xs_of_train(name, kind, at_once, monkeypatch):
    monkeypatch.setattr(listed, "NUMBERS_AT_ONCE", at_once)
    mixture, twin = mixture_and_twin(name, kind)
    prior = OneTokenAnswers(mixture).mean_prior(RELATION)
    assert isinstance(prior, ListedPrior)
    expected = mean_answer(twin, kind)
    torch.testing.assert_close(prior.log_probs, expected.log().double(), rtol=0, atol=1e-9)
    assert prior.description == "the mean of the answers to all 2 x's of train"
    outcomes = AskedFacts(mixture, RELATION, "test").prior_outcomes(prior, top=3)
    assert [(outcome.x, outcome.y) for outcome in outcomes] == [(x, y) for x, y, _ in ASKED]
    for outcome, (_, y, others) in zip(outcomes, ASKED, strict=True):
        assert outcome.rank == reference.rank(expected.log(), token(name, y), [token(name, other) for other in others])
        assert outcome.raw_rank == reference.rank(expected.log(), token(name, y))
        assert outcome.log_probability == pytest.approx(math.log(expected[token(name, y)]), abs=1e-9)
        assert outcome.probabilities == pytest.approx(expected.topk(3).values.tolist(), abs=1e-9)
        assert outcome.answers == outcomes[0].answers


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("name", ["bert", "albert", "bart", "llama"])
def test_x_masked_is_one_mask_token_at_x(name, kind):
    mixture, twin = mixture_and_twin(name, kind)
    prior = OneTokenAnswers(mixture).masked_prior()
    if name == "llama":
        assert prior is None
        return
    assert isinstance(prior, ListedPrior)
    lm = exact(name)
    mask = [lm.tokenizer.mask_token_id]
    each = [
        reference.log_p_y(
            lm.model, lm.tokenizer, tiny.FAMILY[name], pieces(name, text), mask, vectors, deltas or None
        )
        for text, vectors, deltas in zip(twin.templates, twin.vectors, twin.deltas, strict=True)
    ]  # fmt: skip
    expected = reference.log_mixture(reference.log_softmax(twin.weight_logits), each).detach()
    torch.testing.assert_close(prior.log_probs, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["bert", "bart", "llama"])
def test_corrected_by_the_prior(name):
    mixture, twin = mixture_and_twin(name, "static")
    outcomes = corrected(OneTokenAnswers(mixture).mean_prior(RELATION), mixture, RELATION, top=3)
    log_prior = mean_answer(twin, "static").log()
    for outcome, (x, y, others) in zip(outcomes, ASKED, strict=True):
        scores = twin.log_mixture(x, data_dependent=False).detach() - log_prior
        assert outcome.rank == reference.rank(scores, token(name, y), [token(name, other) for other in others])
        shares = scores.exp() / scores.exp().sum()
        assert outcome.log_probability == pytest.approx(math.log(shares[token(name, y)]), abs=1e-8)
        assert outcome.probabilities == pytest.approx(shares.topk(3).values.tolist(), abs=1e-8)


def test_what_the_prior_rules_out_is_no_answer():
    mixture = Mixture(frozen("bert"), TEMPLATES, paper_spec())
    prior = OneTokenAnswers(mixture).mean_prior(CAPITALS)
    assert isinstance(prior, ListedPrior)
    log_probs = prior.log_probs.clone()
    (peru,) = mixture.token_words.numbers_of(["Peru"])
    log_probs[peru] = -torch.inf
    (outcome,) = corrected(ListedPrior("made up", OneTokenAnswers(mixture), log_probs), mixture, CAPITALS)
    assert outcome.rank == mixture.token_words.count
    assert outcome.log_probability == -math.inf


def test_the_majority_by_hand():
    # Peru 3, Norway 2, Spain 1 and Egypt 1 in train; Massachusetts is no token of the LM.
    counts = {"Peru": 3, "Norway": 2, "Spain": 1, "Egypt": 1, "Massachusetts": 4}
    train = [Fact(f"x{y}{n}", y) for y, count in counts.items() for n in range(count)]
    test = [Fact("Lima", "Peru"), Fact("Oslo", "Norway"), Fact("Oslo", "Peru"), Fact("Paris", "Spain")]
    test += [Fact("Rome", "Italy"), Fact("Boston", "Massachusetts")]
    relation = Relation.of("r", train, test[:1], test)
    mixture = Mixture(frozen("bert"), TEMPLATES, paper_spec())
    prior = OneTokenAnswers(mixture).majority(relation)
    outcomes = {(o.x, o.y): o for o in AskedFacts(mixture, relation, "test").prior_outcomes(prior)}
    unseen = mixture.token_words.count - 4
    assert {fact: outcome.rank for fact, outcome in outcomes.items()} == {
        ("Lima", "Peru"): 1,
        ("Oslo", "Norway"): 1,  # Peru, before it, is right for Oslo, too
        ("Oslo", "Peru"): 1,
        ("Paris", "Spain"): 3.5,  # as frequent as Egypt
        ("Rome", "Italy"): 1 + 4 + (unseen - 1) / 2,  # with all that train does not have
    }
    assert outcomes["Oslo", "Norway"].raw_rank == 2
    assert outcomes["Lima", "Peru"].log_probability == pytest.approx(math.log(3 / 7))
    assert outcomes["Rome", "Italy"].log_probability == -math.inf
    assert outcomes["Lima", "Peru"].answers[:2] == ("Peru", "Norway")
    assert outcomes["Lima", "Peru"].probabilities[:3] == pytest.approx((3 / 7, 2 / 7, 1 / 7))
    assert prior.description == "how often each y occurs in 7 train facts"


def test_controls_are_ranked_among_the_candidates():
    mixture = Mixture(frozen("roberta"), TEMPLATES, paper_spec())
    words = Candidates("five", ("Peru", "Italy", "Norway", "Spain", "Egypt"))
    relation = Relation.of("r", CAPITALS.train, CAPITALS.dev, [Fact("Lima", "Peru"), Fact("Berlin", "Germany")])
    among = OneTokenAnswers(mixture, words)
    (outcome,) = AskedFacts(mixture, relation, "test", words).prior_outcomes(among.majority(relation))
    # Norway stands twice in train; Peru, Italy, Spain and Egypt once.
    assert (outcome.y, outcome.rank, outcome.answers[0]) == ("Peru", 2 + 3 / 2, "Norway")
    (outcome,) = corrected(among.mean_prior(relation), mixture, relation, candidates=words)
    assert set(outcome.answers) == set(words.words)
    assert sum(outcome.probabilities) == pytest.approx(1)


def test_a_flat_prior_corrects_nothing():
    mixture = Mixture(frozen("bert"), TEMPLATES, paper_spec())
    log_probs = torch.full((mixture.token_words.count,), -3.0, dtype=torch.float64)
    flat = ListedPrior("flat", OneTokenAnswers(mixture), log_probs)
    found = corrected(flat, mixture, CAPITALS, split="train")
    plain = evaluate_split(mixture, CAPITALS, split="train").outcomes
    assert [outcome.rank for outcome in found] == [outcome.rank for outcome in plain]
    assert [outcome.answers for outcome in found] == [outcome.answers for outcome in plain]
    assert [o.log_probability for o in found] == pytest.approx([o.log_probability for o in plain], abs=1e-5)


def test_of_many_xs_some_are_drawn():
    mixture = Mixture(frozen("bert"), TEMPLATES, paper_spec())
    answers, found = OneTokenAnswers(mixture), []
    for seed in (1, 1, 2):
        prior = answers.mean_prior(CAPITALS, most=3, seed=seed)
        assert isinstance(prior, ListedPrior)
        assert prior.description == f"the mean of the answers to 3 of the 10 x's of train, drawn with the seed {seed}"
        found.append(prior.log_probs)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert torch.allclose(found[0].exp().sum(), torch.tensor(1.0, dtype=torch.float64), atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_every_control_that_an_lm_can_have_answers_the_same_facts(name):
    mixture = Mixture(frozen(name), TEMPLATES, paper_spec())
    found = examine(mixture, CAPITALS).controls
    masked = [PRIOR_MASKED_X] if name == "bert" else []
    assert list(found.outcomes) == list(found.descriptions) == [MAJORITY, PRIOR, *masked, PRIOR_CORRECTED]
    assert list(found.controls) == [MAJORITY, PRIOR, *masked]
    for split in ("test", "dev"):
        facts = [(outcome.x, outcome.y) for outcome in evaluate_split(mixture, CAPITALS, split=split).outcomes]
        for by_split in found.outcomes.values():
            assert [(outcome.x, outcome.y) for outcome in by_split[split]] == facts
    assert found.missing == {}


def test_without_train_facts_it_is_said_what_is_missing():
    mixture = Mixture(frozen("bert"), TEMPLATES, paper_spec())
    relation = Relation.of("bare", [], CAPITALS.dev, CAPITALS.test)
    found = examine(mixture, relation).controls
    assert list(found.outcomes) == [PRIOR_MASKED_X]
    assert set(found.missing) == {MAJORITY, PRIOR, PRIOR_CORRECTED}
    assert "bare" in found.missing[MAJORITY]
    without_dev = examine(mixture, Relation.of("bare", CAPITALS.train, [], CAPITALS.test))
    assert "dev facts" in without_dev.missing["dev"] == without_dev.controls.missing["dev"]
    assert list(without_dev.evaluations) == ["test"]
    with pytest.raises(NothingLeft, match="test facts"):
        examine(mixture, Relation.of("bare", CAPITALS.train, CAPITALS.dev, []))
