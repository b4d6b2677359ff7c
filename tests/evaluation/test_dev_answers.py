"""Abstention: thresholds from dev answers by hand, and asking with them."""

import json
import math

import pytest
from agreement import moved, plain
from builders.outcomes import outcome
from builders.worlds import CAPITALS, TEMPLATES
from pydantic import ValidationError

from askwell.answers.candidates import Candidates
from askwell.errors import BadOption, UsageError
from askwell.evaluation.examine import evaluate_split
from askwell.evaluation.scoring import Evaluation
from askwell.evaluation.selective import RiskLimits, ask_all, dev_answers, need_dev_answers, threshold_of
from askwell.files import to_json
from askwell.mixture.description import About
from askwell.mixture.learned_from import DevAnswers
from askwell.mixture.save import read_description


def made(confidences, right, candidates=None):
    return DevAnswers(
        relation="r",
        vocabulary="all",
        candidates=candidates,
        facts=len(right),
        left_out={},
        probabilities=tuple(confidences),
        right=tuple(1 if one else 0 for one in right),
    )


def test_what_is_kept_of_dev_by_hand():
    outcomes = (
        outcome("a", "A", 3, answers={"B": 0.25}),
        outcome("b", "B", answers={"B": 0.75}),
        outcome("c", "C", 2, golds=("C", "D"), answers={"D": 0.5}),
        outcome("c", "D", 1, golds=("C", "D"), answers={"D": 0.5}),
    )
    kept = dev_answers(Evaluation("dev", "all 9 answers", outcomes, ()))
    assert to_json(kept) == {
        "relation": "r",
        "vocabulary": "all 9 answers",
        "candidates": None,
        "facts": 4,
        "left_out": {},
        "probabilities": [0.75, 0.5, 0.25],
        "right": [1, 1, 0],
    }
    assert threshold_of(kept, 0.0) == 0.5
    assert threshold_of(kept, 0.4) == 0.25
    with pytest.raises(UsageError, match="dev facts of one relation"):
        dev_answers(Evaluation("test", "all", outcomes, ()))


def test_a_risk_that_cannot_be_kept_says_what_to_do():
    with pytest.raises(BadOption, match=r"risk of 10 %: on the 2 dev questions.*1 are answered right.*higher risk$"):
        threshold_of(made([0.9, 0.8], [False, True]), 0.1)
    with pytest.raises(BadOption, match=r"none of the 2 dev questions of r is answered right, so there is nothing"):
        threshold_of(made([0.9, 0.8], [False, False]), 0.99)
    # 28 right answers are too few to be sure, 29 are enough: 1 - 0.05^(1/29) < 0.1.
    with pytest.raises(BadOption, match="lower confidence"):
        threshold_of(made([0.5] * 28, [True] * 28), 0.1, 0.95)
    assert threshold_of(made([0.5] * 29, [True] * 29), 0.1, 0.95) == 0.5


def test_dev_answers_come_back_from_the_saved_folder(tmp_path):
    mixture = moved(plain("bert"), TEMPLATES)
    found = dev_answers(evaluate_split(mixture, CAPITALS, split="dev", top=1))
    best = {fact.x: mixture.ask(fact.x, top=1)[0] for fact in CAPITALS.dev}
    assert sorted(found.probabilities) == pytest.approx(sorted(reply.probability for reply in best.values()))
    mixture.save_pretrained(tmp_path, about=About(dev_answers=found))
    assert need_dev_answers(read_description(tmp_path).dev_answers) == found
    assert json.loads((tmp_path / "config.json").read_text())["dev_answers"] == to_json(found)


def test_an_answer_below_the_threshold_is_not_given():
    mixture = moved(plain("bert"), TEMPLATES)
    xs = ["Paris", "Rome", "Lima", "Oslo"]
    sure = [mixture.ask(x, top=1)[0].probability for x in xs]
    middle = sorted(sure)[2]
    # All dev answers from the threshold on are right, the one just below it is wrong.
    dev = made([middle, middle / 2, 0.0], [True, False, False])
    replies = list(ask_all(mixture, xs, limits=RiskLimits(0.0), top=2, dev=dev))
    assert [reply.x for reply in replies] == xs
    assert [reply.answered for reply in replies] == [p >= middle * 0.999 for p in sure]
    assert {reply.answered for reply in replies} == {True, False}
    assert all(reply.threshold == middle and len(reply.answers) == 2 for reply in replies)
    assert math.isclose(replies[0].answers[0].probability, sure[0], rel_tol=1e-5)


def test_what_cannot_be_asked_cautiously():
    mixture = moved(plain("bert"), TEMPLATES)
    with pytest.raises(UsageError, match=r"no record.*`relation`"):
        need_dev_answers(None)
    words = Candidates("some", ("Rome", "Lima"))
    dev = made([0.5], [True])
    with pytest.raises(BadOption, match="the candidates differ"):
        ask_all(mixture, ["Paris"], limits=RiskLimits(0.1), dev=dev, candidates=words)
    among = made([0.5], [True], words.digest)
    assert len(list(ask_all(mixture, ["Paris"], limits=RiskLimits(0.1), dev=among, candidates=words))) == 1
    with pytest.raises(BadOption, match="the candidates differ"):
        ask_all(mixture, ["Paris"], limits=RiskLimits(0.1), dev=among)
    for damage in ({"relation": None}, {"probabilities": [2.0]}, {"probabilities": [math.nan]}, {"right": []}):
        with pytest.raises(ValidationError):
            DevAnswers.model_validate(to_json(dev) | damage)
    assert DevAnswers.model_validate(to_json(dev)) == dev
