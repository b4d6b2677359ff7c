"""All measures of a real evaluation of a testbed LM, computed again in plain Python from its answers."""

import json
import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from builders.specs import paper_spec
from builders.testbed import load_testbed_lm
from pydantic import TypeAdapter

from askwell.data.facts import Fact, Relation
from askwell.data.names import load_prompts, load_relation
from askwell.evaluation.examine import evaluate_split, examine
from askwell.evaluation.trust import Trust, specialties, trust_of
from askwell.files import to_json
from askwell.mixture.mixture import Mixture

NAME = "testbed:capital"


@pytest.fixture(scope="module")
def asked():
    relation = load_relation(NAME)
    mixture = Mixture(load_testbed_lm("bert"), load_prompts("testbed:paraphrased", relation=relation), paper_spec())
    return mixture, relation, evaluate_split(mixture, relation), evaluate_split(mixture, relation, split="dev")


@pytest.fixture(scope="module")
def found(asked):
    mixture, relation, *_ = asked
    return trust_of(examine(mixture, relation, controls=False), risk=0.1)


def questions(evaluation):
    """(probability, right) of the best answer to each x."""
    by_x = {}
    for outcome in evaluation.outcomes:
        right = outcome.answers[0] in outcome.golds or outcome.raw_rank == 1
        probability, was_right = by_x.get(outcome.x, (outcome.probabilities[0], False))
        by_x[outcome.x] = probability, was_right or right
    return list(by_x.values())


def test_the_calibration_error_matches_one_computed_from_the_outcomes(asked, found):
    given = questions(asked[2])
    bins = defaultdict(list)
    for probability, right in given:
        bins[max(1, math.ceil(probability * 10))].append((probability, right))
    ece = 0.0
    for inside in bins.values():
        accuracy = sum(right for _, right in inside) / len(inside)
        confidence = sum(probability for probability, _ in inside) / len(inside)
        ece += len(inside) / len(given) * abs(accuracy - confidence)
    assert found.calibration.ece == pytest.approx(ece, abs=1e-9)
    assert 0.02 < ece < 0.9, "a case in which there is something to tell"
    assert [one.count for one in found.calibration.bins] == [len(bins[number]) for number in sorted(bins)]
    for one, number in zip(found.calibration.bins, sorted(bins), strict=True):
        assert one.accuracy == pytest.approx(sum(right for _, right in bins[number]) / len(bins[number]))


def test_the_area_and_what_is_answered_at_a_risk(asked, found):
    test, dev = questions(asked[2]), questions(asked[3])
    risks, wrong = [], 0
    for count, (_, right) in enumerate(sorted(test, key=lambda question: -question[0]), start=1):
        wrong += not right
        risks.append(wrong / count)
    assert len({probability for probability, _ in test}) == len(test), "no ties"
    assert found.signals.areas["probability"] == found.risk_coverage.area == pytest.approx(sum(risks) / len(risks))
    thresholds = []
    for threshold, _ in dev:
        answered = [right for probability, right in dev if probability >= threshold]
        if answered.count(False) / len(answered) <= 0.1:
            thresholds.append(threshold)
    answered = [right for probability, right in test if probability >= min(thresholds)]
    assert found.at_risk is not None
    assert found.at_risk.threshold == pytest.approx(min(thresholds))
    assert (found.at_risk.answered, found.at_risk.wrong) == (len(answered), answered.count(False))
    assert 0 < found.at_risk.coverage < 1


def test_answer_sets_match_those_counted_from_the_outcomes(asked, found):
    _, _, test, dev = asked
    assert all(len(outcome.golds) == 1 for outcome in (*test.outcomes, *dev.outcomes))

    def counted(outcomes, threshold):
        given = [
            (o.y == answer)
            for o in outcomes
            for answer, p in zip(o.answers, o.probabilities, strict=True)
            if p >= threshold
        ]
        return sum(given), len(given)

    def f1(outcomes, threshold):
        hits, given = counted(outcomes, threshold)
        return 2 * hits / (given + len(outcomes))

    best = max((f1(dev.outcomes, p), p) for outcome in dev.outcomes for p in outcome.probabilities)
    hits, given = counted(test.outcomes, best[1])
    assert found.answer_sets is not None
    assert found.answer_sets.threshold == pytest.approx(best[1])
    assert found.answer_sets.precision == pytest.approx(hits / given)
    assert found.answer_sets.recall == pytest.approx(hits / len(test.outcomes))


def test_consistency_of_paraphrases(asked, found):
    mixture, relation, test, _ = asked
    single = [Mixture(mixture.lm, [prompt.template.text], paper_spec()) for prompt in mixture.prompts]
    best = [[outcome.answers[0] for outcome in evaluate_split(one, relation).outcomes] for one in single]
    assert {len(answers) for answers in best} == {len(test.outcomes)}, "one form of y for all prompts"
    same = [
        best[a][row] == best[b][row] for row in range(len(test.outcomes)) for a in range(len(best)) for b in range(a)
    ]
    assert found.consistency is not None
    assert found.consistency.all.pairs == pytest.approx(sum(same) / len(same))
    assert found.consistency.all.weighted == pytest.approx(found.consistency.all.pairs), "its weights are equal"
    agree = sum(len({answers[row] for answers in best}) == 1 for row in range(len(test.outcomes)))
    assert found.consistency.all.all_agree == pytest.approx(agree / len(test.outcomes))


def test_what_the_figures_are_of(asked, found):
    _, relation, test, dev = asked
    assert (found.relation, found.facts, found.dev_facts) == (NAME, len(test.outcomes), len(dev.outcomes))
    assert sum(found.left_out.values()) == len(relation.test) - len(test.outcomes) > 0
    assert sum(found.dev_left_out.values()) == len(relation.dev) - len(dev.outcomes) > 0
    assert found.vocabulary == test.vocabulary
    assert found.scores == test.micro
    assert found.projection is None
    assert found.missing == {"projection": "the prompts are words already"}
    document = json.loads(json.dumps(to_json(found), allow_nan=False))
    assert document["calibration"]["ece"] == found.calibration.ece
    assert document["at_risk"]["found_risk"] == found.at_risk.found_risk


def test_what_is_missing_is_said(asked):
    mixture, relation, *_ = asked
    alone = Mixture(mixture.lm, [mixture.prompts[0].template.text], paper_spec())
    with torch.no_grad():
        alone.vectors.add_(0.01)
    no_dev = Relation.of("few", relation.train[:5], [Fact("Haiti", "Port-au-Prince")], relation.test[:20])
    found = trust_of(examine(alone, no_dev, controls=False))
    assert found.at_risk is found.answer_sets is found.consistency is None
    assert set(found.missing) == {"at_risk", "answer_sets", "consistency"}
    assert "learned on dev" in found.missing["at_risk"]
    assert list(found.signals.areas) == ["probability"]
    assert found.projection is not None
    assert found.projection.tuned == found.scores
    given = trust_of(examine(mixture, relation, controls=False), risk=0.0, confidence=0.99)
    assert given.at_risk is not None
    assert (given.at_risk.threshold, given.at_risk.answered, given.at_risk.found_risk) == (None, 0, None)
    assert given.at_risk.confidence == to_json(given)["at_risk"]["confidence"] == 0.99
    assert to_json({"several": [given]})["several"] == [to_json(given)]
    assert TypeAdapter(Trust).validate_python(to_json(given)) == given


def test_what_each_prompt_is_for_counted_by_hand():
    weights = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.3, 0.7, 0.0], [0.6, 0.4, 0.0]])
    right = np.array([True, False, True, True])
    found = specialties(["a", "b", "c"], ["w", "x", "y", "z"], weights, right)
    assert [(one.template, one.weight, one.leads, one.right) for one in found] == [
        ("a", pytest.approx(0.5), 2, 2),
        ("b", pytest.approx(0.5), 2, 1),
        ("c", 0.0, 0, 0),
    ]
    assert [list(one.xs.items()) for one in found] == [[("w", 0.9), ("z", 0.6)], [("x", 0.8), ("y", 0.7)], []]
    assert specialties(["a", "b", "c"], ["w", "x"], weights[[0, 0]], right[:2]) == ()
