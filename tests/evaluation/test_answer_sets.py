"""Answer sets by hand, and thresholds tried one by one."""

import numpy as np
import pytest
from builders.outcomes import outcome

from askwell.evaluation.confidence import learn_set_threshold, score_answer_sets

# x asks for A and B and has T in train; w asks for C.
ANSWERS = {"A": 0.4, "T": 0.3, "Z": 0.2, "B": 0.05}
X = [outcome("x", y, golds=("A", "B", "T"), answers=ANSWERS) for y in ("A", "B")]
W = [outcome("w", "C", answers={"Z": 0.6, "C": 0.3})]


def test_precision_recall_and_f1_match_those_computed_by_hand():
    # At 0.2: x gives A and Z (T does not count), w gives Z and C.
    found = score_answer_sets(X + W, 0.2)
    assert (found.questions, found.answered) == (2, 2)
    assert found.precision == pytest.approx(2 / 4)
    assert found.recall == pytest.approx(2 / 3)
    assert found.f1 == pytest.approx(2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3))
    # x: P 1/2, R 1/2; w: P 1/2, R 1.
    assert found.mean_f1 == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert found.cut == 1  # w's last answer is above the threshold, so there may be more


def test_a_threshold_above_all_answers_scores_zero():
    found = score_answer_sets(X + W, 0.99)
    assert (found.precision, found.recall, found.f1, found.mean_f1, found.answered, found.cut) == (0, 0, 0, 0, 0, 0)


def test_the_best_threshold_by_hand():
    # 0.6: Z; 0.4: + A (F1 2/5); 0.3: + C (4/6); 0.2: + Z (4/7); 0.05: + B (6/8).
    assert learn_set_threshold(X + W) == 0.05
    assert learn_set_threshold(X + W + [outcome("v", "V", 9, answers={"1": 0.1, "2": 0.1, "3": 0.09})]) == 0.3


@pytest.mark.parametrize("seed", range(5))
def test_the_best_threshold_against_all_tried(seed):
    random = np.random.default_rng(seed)
    outcomes = []
    for number in range(12):
        probabilities = sorted(np.round(random.random(6), 1).tolist(), reverse=True)
        answers = dict(zip("ABCDEF", probabilities, strict=True))
        ys = [y for y in "ABCDEFG" if random.random() < 0.3] or ["G"]
        outcomes += [outcome(str(number), y, golds=tuple(ys), answers=answers, raw_rank=50) for y in ys]
    tried = {t: score_answer_sets(outcomes, t).f1 for t in np.round(np.arange(0, 1.01, 0.1), 1).tolist()}
    best = max(tried.values())
    assert learn_set_threshold(outcomes) == max(t for t, f1 in tried.items() if f1 == pytest.approx(best))


def test_without_a_right_answer_the_threshold_is_one():
    assert learn_set_threshold([outcome("x", "A", 9, answers={"Z": 0.3})]) == 1


def test_answers_that_are_written_otherwise():
    lower = outcome("x", "Paris", raw_rank=2, answers={"lyon": 0.5, "paris": 0.4})
    assert score_answer_sets([lower], 0.4).recall == 1
    tied = outcome("x", "Paris", raw_rank=1.5, answers={"lyon": 0.5, "paris": 0.5})
    assert score_answer_sets([tied], 0.4).recall == 0
    far = outcome("x", "Paris", raw_rank=3, answers={"lyon": 0.5, "paris": 0.4})
    assert score_answer_sets([far], 0.4).recall == 0


def test_a_repeated_fact_is_asked_for_once():
    assert score_answer_sets(X + X + W, 0.2) == score_answer_sets(X + W, 0.2)
