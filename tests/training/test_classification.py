"""Tuning to choose among candidates: it improves, resumes where it stopped, and says what it left out."""

import functools

import pytest
import torch
from builders.worlds import frozen

from askwell.answers.candidates import Candidates
from askwell.answers.listed import NOT_A_CANDIDATE
from askwell.data.facts import Fact, Relation
from askwell.errors import BadOption, NothingLeft
from askwell.evaluation.examine import evaluate_split
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training.history import TrainingResult
from askwell.training.loop import train

CITIES, COUNTRIES = ("Paris", "Rome", "Lima", "Oslo", "Berlin", "Vienna"), ("Italy", "Peru", "Norway", "Spain", "Egypt")
KINDS = Candidates(
    "kinds", ("Boston", "Quito", "France", "Mary Cassatt"), ("a city", "a city", "a country", "a person")
)
EVERY = [Fact(x, "a city") for x in CITIES] + [Fact(x, "a country") for x in COUNTRIES]
RELATION = Relation.of("kinds", [*EVERY, Fact("Cuba", "an island")], EVERY[3:8], EVERY)
TEMPLATES = ["[X] lies in [Y] .", "the capital of [X] is [Y]"]
SPEC = TrainingSpec(pairs=240, threads=1)


def new_mixture(name: str = "bert", **spec: object) -> Mixture:
    return Mixture(frozen(name), TEMPLATES, MixtureSpec.model_validate({"seed": 5, **spec}))


@pytest.mark.parametrize("name", ["bert", "bart", "llama"])
def test_it_learns_to_tell_the_labels_apart(name: str) -> None:
    mixture = new_mixture(name)
    result = train(mixture, RELATION, SPEC, candidates=KINDS)
    untuned, tuned = result.history[0].dev, result.best.dev
    assert tuned["P@1"] >= untuned["P@1"]
    assert tuned["log_loss"] < untuned["log_loss"] - 0.1
    assert result.vocabulary == "3 labels of kinds"
    assert mixture.candidates == KINDS
    evaluation = evaluate_split(mixture, RELATION, split="dev")
    assert evaluation.log_loss == pytest.approx(tuned["log_loss"], abs=1e-5), "it chooses among its own labels"
    assert {reply.y for reply in mixture.ask("Paris")} == {"a city", "a country", "a person"}


def test_a_product_learns_its_weights() -> None:
    mixture = new_mixture(combine="product")
    before = mixture.weights.clone()
    result = train(mixture, RELATION, SPEC, candidates=KINDS)
    assert result.best.dev["log_loss"] < result.history[0].dev["log_loss"]
    assert not torch.equal(before, mixture.weights)


@functools.cache
def whole_run(weighting: str) -> tuple[TrainingResult, Mixture]:
    """A run that nothing interrupts, and its mixture. No test may change them."""
    mixture = new_mixture(weighting=weighting)
    return train(mixture, RELATION, SPEC, candidates=KINDS), mixture


@pytest.mark.parametrize(("weighting", "stop_at"), [("static", 0), ("static", 9), ("data-dependent", 4)])
def test_an_interrupted_run_that_is_resumed_equals_one_that_was_not(tmp_path, weighting, stop_at) -> None:
    expected, whole = whole_run(weighting)
    calls = []

    def interrupt(progress):
        calls.append(progress)
        if len(calls) > stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(new_mixture(weighting=weighting), RELATION, SPEC, candidates=KINDS, folder=tmp_path, progress=interrupt)
    other = Candidates("others", ("Boston", "France"), ("a city", "a country"))
    with pytest.raises(BadOption, match="a different LM, facts"):
        train(new_mixture(weighting=weighting), RELATION, SPEC, candidates=other, folder=tmp_path, resume=True)
    resumed = new_mixture(weighting=weighting)
    result = train(resumed, RELATION, SPEC, candidates=KINDS, folder=tmp_path, resume=True)
    assert result.history == expected.history
    assert result.learned_from == expected.learned_from
    first, second = whole.state_dict(), resumed.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_y_that_is_no_candidate_is_counted_as_left_out() -> None:
    result = train(new_mixture(), RELATION, SPEC.model_copy(update={"pairs": 20}), candidates=KINDS)
    assert result.train_facts == len(EVERY)
    assert result.learned_from.left_out == {"train": {NOT_A_CANDIDATE: 1}, "dev": {}}


def test_no_fact_with_a_candidate() -> None:
    none = Relation.of("none", EVERY, [Fact("Cuba", "an island")], EVERY)
    with pytest.raises(NothingLeft, match=f"no dev facts of none left: 1 × {NOT_A_CANDIDATE}"):
        train(new_mixture(), none, SPEC, candidates=KINDS)


def test_one_token_answers_are_refused() -> None:
    with pytest.raises(BadOption, match="`answers` one-token"):
        train(new_mixture(answers="one-token"), RELATION, SPEC, candidates=KINDS)
