"""Whole evaluations on tiny LMs against a plain loop over facts with the reference."""

import math

import pytest
import reference
import torch
from agreement import X_FIRST, Twin, exact, ids, moved, plain, script, usable
from builders import tiny
from builders.specs import paper_spec

from askwell.answers import listed
from askwell.answers.candidates import Candidates
from askwell.answers.listed import NOT_A_CANDIDATE, best_first
from askwell.answers.reply import NOT_ONE_TOKEN
from askwell.data.facts import Fact, Relation
from askwell.errors import NotFinite, NothingLeft
from askwell.evaluation.examine import evaluate_split
from askwell.evaluation.scoring import Evaluation, score_facts, together
from askwell.files import to_json
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture

# Reykjavik has golds in all three splits, one of them of several tokens.
RELATION = Relation.of(
    "P36",
    train=[Fact("Reykjavik", "Rome"), Fact("Paris", "Lima")],
    dev=[Fact("Reykjavik", "Oslo")],
    test=[
        Fact("Reykjavik", "Italy"),
        Fact("Reykjavik", "Peru"),
        Fact("Reykjavik", "Massachusetts"),
        Fact("Paris", "Quito"),
        Fact("Mary Cassatt", "Paris"),
    ],
)
GOLDS = {"Reykjavik": ["Rome", "Oslo", "Italy", "Peru"], "Paris": ["Lima", "Quito"], "Mary Cassatt": ["Paris"]}


def token(name: str, word: str) -> int:
    written = {"wordpiece": word, "byte-level": f"Ġ{word}", "albert": f"▁{word.lower()}"}[script(name)]
    return ids(name, written)[0]


@pytest.mark.parametrize("data_dependent", [False, True])
@pytest.mark.parametrize("name", ["bert", "albert", "bart", "llama-metaspace"])
def test_against_a_plain_loop(name: str, data_dependent: bool) -> None:
    templates = usable(name)
    mixture = moved(
        exact(name), templates, paper_spec(deep=True, weighting="data-dependent" if data_dependent else "static")
    )
    evaluation = evaluate_split(mixture, RELATION, top=3)
    twin = Twin.of(name, templates, mixture)
    facts = [("Mary Cassatt", "Paris"), ("Paris", "Quito"), ("Reykjavik", "Italy"), ("Reykjavik", "Peru")]
    assert [(outcome.x, outcome.y) for outcome in evaluation.outcomes] == facts
    ranks, raw_ranks, log_loss = [], [], 0.0
    for outcome, (x, y) in zip(evaluation.outcomes, facts, strict=True):
        log_probs = twin.log_mixture(x, data_dependent=data_dependent).detach()
        others = [token(name, gold) for gold in GOLDS[x] if gold != y]
        ranks.append(reference.rank(log_probs, token(name, y), others))
        raw_ranks.append(reference.rank(log_probs, token(name, y)))
        log_loss -= float(log_probs[token(name, y)]) / len(facts)
        assert outcome.rank == ranks[-1]
        assert outcome.raw_rank == raw_ranks[-1]
        assert outcome.log_probability == pytest.approx(float(log_probs[token(name, y)]), abs=1e-9)
        assert outcome.probabilities == pytest.approx(log_probs.exp().topk(3).values.tolist(), abs=1e-9)
        assert set(GOLDS[x]) <= set(outcome.golds)
    assert ranks != raw_ranks, "no other gold comes before a gold here: choose another seed"
    figures = to_json(evaluation.figures())
    assert figures["facts"] == 4
    assert figures["left_out"] == {NOT_ONE_TOKEN: 1}
    assert figures["split"] == "test"
    assert figures["micro"] == pytest.approx(reference.brute_metrics(ranks))
    assert figures["macro"] == pytest.approx(reference.brute_metrics(ranks)), "one relation: both means are the same"
    assert figures["raw"]["micro"] == pytest.approx(reference.brute_metrics(raw_ranks))
    assert figures["log_loss"] == pytest.approx(log_loss, abs=1e-9)
    assert evaluation.micro == figures["micro"]
    assert figures["relations"] == {"P36": {"facts": 4, **figures["micro"]}}
    assert [(fact.fact.y, fact.reason) for fact in evaluation.left_out] == [("Massachusetts", NOT_ONE_TOKEN)]


def test_the_most_probable_answers_are_named() -> None:
    mixture = moved(plain("bert"), X_FIRST)
    evaluation = evaluate_split(mixture, RELATION, top=4)
    for outcome in evaluation.outcomes:
        replies = mixture.ask(outcome.x, top=4)
        assert outcome.answers == tuple(reply.y for reply in replies)
        assert list(outcome.probabilities) == sorted(outcome.probabilities, reverse=True)


@pytest.mark.parametrize("split", ["train", "dev"])
def test_train_and_dev_can_be_evaluated(split: str) -> None:
    mixture = Mixture(plain("bert"), X_FIRST, paper_spec())
    evaluation = evaluate_split(mixture, RELATION, split=split)  # ty: ignore[invalid-argument-type]
    assert evaluation.split == split
    assert [(o.x, o.y) for o in evaluation.outcomes] == [(fact.x, fact.y) for fact in RELATION.split(split)]


def test_in_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    mixture = moved(exact("bert"), X_FIRST, paper_spec(weighting="data-dependent"))
    whole = evaluate_split(mixture, RELATION)
    told = []
    monkeypatch.setattr(listed, "NUMBERS_AT_ONCE", 1)
    chunked = evaluate_split(mixture, RELATION, progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    for one, other in zip(whole.outcomes, chunked.outcomes, strict=True):
        assert (one.x, one.y, one.rank, one.raw_rank) == (other.x, other.y, other.rank, other.raw_rank)
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-12)


def test_scores_without_answers_are_the_same_scores() -> None:
    mixture = moved(exact("bert"), X_FIRST)
    encoded, _ = mixture.encode(RELATION.test)
    scores, evaluation = (
        score_facts(mixture.answering(kind=encoded.kind), encoded, RELATION),
        evaluate_split(mixture, RELATION),
    )
    assert evaluation.log_loss == pytest.approx(scores.pop("log_loss"))
    assert scores == {**evaluation.micro, "facts": len(evaluation.outcomes)}


# Candidates


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_ranks_among_candidates_match_the_reference(name: str) -> None:
    mixture = moved(exact(name), X_FIRST)
    candidates = Candidates("cities", ("Rome", "Lima", "Italy", "Quito", "Reykjavik", "Berlin", "Oslo"))
    evaluation = evaluate_split(mixture, RELATION, candidates=candidates, top=2)
    assert [(o.x, o.y) for o in evaluation.outcomes] == [("Paris", "Quito"), ("Reykjavik", "Italy")]
    left_out = {(fact.fact.x, fact.fact.y): fact.reason for fact in evaluation.left_out}
    assert left_out == {
        ("Reykjavik", "Massachusetts"): NOT_ONE_TOKEN,
        ("Reykjavik", "Peru"): NOT_A_CANDIDATE,
        ("Mary Cassatt", "Paris"): NOT_A_CANDIDATE,
    }
    assert evaluation.candidates_left_out == 1
    assert evaluation.vocabulary == "6 candidates of cities"
    twin = Twin.of(name, X_FIRST, mixture)
    words = ["Rome", "Lima", "Italy", "Quito", "Berlin", "Oslo"]
    for outcome in evaluation.outcomes:
        log_probs = twin.log_mixture(outcome.x, data_dependent=False).detach()
        of_words = [float(log_probs[token(name, word)]) for word in words]
        others = [words.index(gold) for gold in GOLDS[outcome.x] if gold in words and gold != outcome.y]
        assert outcome.rank == reference.rank(of_words, words.index(outcome.y), others)
        assert outcome.raw_rank == reference.rank(of_words, words.index(outcome.y))
        best = sorted(words, key=lambda word: -of_words[words.index(word)])[:2]
        assert list(outcome.answers) == best
        share = math.exp(of_words[words.index(outcome.y)]) / sum(map(math.exp, of_words))
        assert math.exp(outcome.log_probability) == pytest.approx(share, abs=1e-9)


def test_no_gold_among_the_candidates() -> None:
    with pytest.raises(NothingLeft, match=r"no test facts of P36 left: 4 × y is not among .*; 1 × y is not one token"):
        evaluate_split(
            Mixture(plain("bert"), X_FIRST, paper_spec()), RELATION, candidates=Candidates("few", ("Berlin",))
        )


def test_no_facts_in_the_split() -> None:
    empty = Relation.of("P36", train=[Fact("Paris", "Lima")], dev=[], test=[])
    with pytest.raises(NothingLeft, match="no test facts of P36 left: none were given"):
        evaluate_split(Mixture(plain("bert"), X_FIRST, paper_spec()), empty)


# Several relations


def test_relations_are_put_together_in_micro_and_macro_means() -> None:
    mixture = moved(exact("bert"), X_FIRST)
    second = Relation.of("P19", train=[], dev=[], test=[Fact("Mary Cassatt", "Vienna"), Fact("Paris", "Boston")])
    parts = [evaluate_split(mixture, relation) for relation in (RELATION, second)]
    both = together(parts)
    assert isinstance(both, Evaluation)
    ranks = {part.outcomes[0].relation: [outcome.rank for outcome in part.outcomes] for part in parts}
    means = {name: reference.brute_metrics(of_relation) for name, of_relation in ranks.items()}
    figures = to_json(both.figures())
    assert figures["facts"] == 5
    assert figures["left_out"] == {NOT_ONE_TOKEN: 2}
    assert figures["micro"] == pytest.approx(reference.brute_metrics(ranks["P36"] + ranks["P19"]))
    assert figures["macro"] == pytest.approx({key: (means["P36"][key] + means["P19"][key]) / 2 for key in means["P36"]})
    assert figures["relations"]["P19"] == pytest.approx({"facts": 1, **means["P19"]})


# Not finite


def test_an_lm_that_gives_nan_is_an_error_not_a_rank() -> None:
    model, tokenizer = tiny.TINY["bert"]()
    with torch.no_grad():
        next(iter(model.base_model.parameters()))[:] = torch.nan
    mixture = Mixture(FrozenLM(model, tokenizer, name="broken"), X_FIRST, paper_spec())
    with pytest.raises(NotFinite, match="broken"):
        evaluate_split(mixture, RELATION)


def test_a_weight_that_is_nan_is_an_error_not_a_rank() -> None:
    mixture = Mixture(plain("bert"), X_FIRST, paper_spec())
    with torch.no_grad():
        mixture.weight_logits[0] = torch.nan
    with pytest.raises(NotFinite, match="not finite"):
        evaluate_split(mixture, RELATION)


@pytest.mark.parametrize(("top", "expected"), [(1, [1]), (3, [1, 4, 0]), (4, [1, 4, 0, 2]), (9, [1, 4, 0, 2, 3, 5])])
def test_best_answers_of_equal_ones_stand_in_their_order(top, expected):
    log_probs = torch.tensor([-2.0, -1.0, -2.0, -5.0, -1.0, -torch.inf])
    assert best_first(log_probs[None], min(top, 6)).tolist() == [expected]
