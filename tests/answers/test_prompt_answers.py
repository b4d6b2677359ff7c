"""What each prompt of a mixture says by itself: against the reference, and signals worked out by hand."""

import math

import numpy as np
import pytest
import torch
from agreement import Twin, exact, moved, plain, usable
from builders.specs import paper_spec

from askwell.answers import listed
from askwell.answers.candidates import Candidates
from askwell.answers.one_token import OneTokenAnswers
from askwell.answers.strategy import PromptAnswers
from askwell.data.facts import Fact, Relation
from askwell.evaluation.examine import examine
from askwell.evaluation.trust import compare_signals, disagreement
from askwell.mixture.mixture import Mixture

XS = ["Reykjavik", "Paris", "Mary Cassatt"]
RELATION = Relation.of("r", [], [], [Fact(x, y) for x in XS for y in ("Rome", "Lima")])
ASKED = list(dict.fromkeys(fact.x for fact in RELATION.test))
SPECS = {"static": paper_spec(deep=True), "data-dependent": paper_spec(weighting="data-dependent")}


def prompt_answers(mixture, candidates=None):
    found = examine(mixture, RELATION, splits=("test",), candidates=candidates, controls=False).prompt_answers
    assert found is not None
    return found


def entropy(probabilities):
    return -sum(p * math.log(p) for p in probabilities if p > 0)


@pytest.mark.parametrize("at_once", [1, 2**22])
@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_against_the_reference(name, kind, at_once, monkeypatch):
    monkeypatch.setattr(listed, "NUMBERS_AT_ONCE", at_once)
    mixture = moved(exact(name), usable(name), SPECS[kind])
    twin = Twin.of(name, usable(name), mixture)
    found = prompt_answers(mixture)
    assert found.prompts == tuple(range(len(mixture.prompts)))
    for row, x in enumerate(ASKED):
        weights = twin.log_weights(x if kind == "data-dependent" else None).exp().tolist()
        each = [twin.log_p_y(prompt, x).exp().tolist() for prompt in range(len(weights))]
        mean = [sum(w * p for w, p in zip(weights, column, strict=True)) for column in zip(*each, strict=True)]
        assert found.weights[row] == pytest.approx(weights)
        assert found.best[row].tolist() == [max(range(len(p)), key=p.__getitem__) for p in each]
        assert found.of_mixture[row] == max(range(len(mean)), key=mean.__getitem__)
        gap = entropy(mean) - sum(w * entropy(p) for w, p in zip(weights, each, strict=True))
        assert found.divergences[row] == pytest.approx(gap, abs=1e-9)


def test_prompts_that_say_the_same_do_not_diverge():
    mixture = Mixture(plain("bert"), ["[X] lies in [Y] ."], paper_spec(copies=3, noise=1e-30))
    found = prompt_answers(mixture)
    assert found.divergences == pytest.approx(0, abs=1e-6)
    assert (found.divergences >= 0).all()
    assert disagreement(found).tolist() == pytest.approx([0, 0, 0])


def test_dropped_prompts_are_not_asked():
    mixture = moved(plain("bert"), usable("bert"))
    with torch.no_grad():
        mixture.weight_logits[1] = -torch.inf
    found = prompt_answers(mixture)
    assert found.prompts == tuple(number for number in range(len(mixture.prompts)) if number != 1)
    assert found.weights.sum(1) == pytest.approx(1)


def test_of_candidates_the_best_is_taken():
    mixture = moved(plain("bert"), usable("bert"))
    candidates = Candidates("some", ("Rome", "Lima"))
    found, words = prompt_answers(mixture, candidates), OneTokenAnswers(mixture, candidates)
    assert {*found.best.ravel().tolist(), *found.of_mixture.tolist()} <= {0, 1}  # by their place in the list
    best = [replies[0].y for replies in (mixture.ask(x, top=1, candidates=candidates) for x in ASKED)]
    assert [words.word(number) for number in found.of_mixture.tolist()] == best


def test_a_product_has_its_own_best_answer():
    mixture = Mixture(plain("bert"), usable("bert"), paper_spec(combine="product"))
    found = prompt_answers(mixture)
    best = [mixture.ask(x, top=1)[0].y for x in ASKED]
    assert [mixture.token_words.word(number) for number in found.of_mixture.tolist()] == best


def test_signals_by_hand():
    answers = PromptAnswers(
        prompts=(0, 1, 2),
        best=np.array([[7, 7, 7], [7, 8, 9], [1, 1, 2]]),
        of_mixture=np.array([7, 8, 2]),
        weights=np.array([[0.5, 0.3, 0.2]] * 3),
        divergences=np.array([0.0, 0.9, 0.4]),
    )
    assert disagreement(answers) == pytest.approx([0, 0.7, 0.8])
    found = compare_signals(np.array([0.9, 0.2, 0.6]), answers, np.array([True, False, True]))
    # In the order of each signal, right is: probability 1 1 0, agreement 1 0 1, divergence 1 1 0.
    assert found.areas == pytest.approx(
        {
            "probability": (0 + 0 + 1 / 3) / 3,
            "agreement": (0 + 1 / 2 + 1 / 3) / 3,
            "divergence": (0 + 0 + 1 / 3) / 3,
        }
    )
    assert found.best_possible == pytest.approx(1 / 9)
    assert found.no_signal == pytest.approx(1 / 3)
