"""Agreement of prompts and of runs: by hand, and by counting all pairs one by one."""

from itertools import combinations, permutations

import numpy as np
import pytest
from builders.outcomes import outcome

from askwell.answers.strategy import PromptAnswers
from askwell.errors import UsageError
from askwell.evaluation.trust import consistency
from askwell.runs.several_runs import run_consistency


def answers_of(best, weights, of_mixture):
    best = np.array(best)
    return PromptAnswers(
        tuple(range(best.shape[1])), best, np.array(of_mixture), np.array(weights), np.zeros(len(best))
    )


def test_prompts_by_hand():
    weights = [0.5, 0.25, 0.25]
    answers = answers_of([[1, 1, 2], [3, 3, 3]], [weights, weights], [1, 3])
    found = consistency(answers, np.array([True, False]))
    assert (found.prompts, found.all.questions) == (3, 2)
    # One of three pairs agrees on the first, all on the second.
    assert found.all.pairs == pytest.approx((1 / 3 + 1) / 2)
    # The pairs weigh 1/8, 1/8 and 1/16.
    assert found.all.weighted == pytest.approx((2 / 5 + 1) / 2)
    assert found.all.all_agree == 0.5
    assert found.all.with_mixture == pytest.approx((0.75 + 1) / 2)
    assert found.right is not None
    assert (found.right.questions, found.right.pairs, found.right.all_agree) == (1, pytest.approx(1 / 3), 0)


@pytest.mark.parametrize("seed", range(5))
def test_prompts_pair_by_pair(seed):
    random = np.random.default_rng(seed)
    best, weights = random.integers(0, 3, (6, 4)), random.dirichlet(np.ones(4), 6)
    right = random.random(6) < 0.6
    found = consistency(answers_of(best, weights, random.integers(0, 3, 6)), right)
    for part, rows in ((found.all, range(6)), (found.right, np.flatnonzero(right))):
        shares, weighted = [], []
        for row in rows:
            pairs = list(combinations(range(4), 2))
            shares.append(sum(best[row, a] == best[row, b] for a, b in pairs) / len(pairs))
            drawn = {(a, b): weights[row, a] * weights[row, b] for a, b in permutations(range(4), 2)}
            agreed = sum(weight for (a, b), weight in drawn.items() if best[row, a] == best[row, b])
            weighted.append(agreed / sum(drawn.values()))
        assert part is not None
        assert part.pairs == pytest.approx(np.mean(shares))
        assert part.weighted == pytest.approx(np.mean(weighted))


def test_prompts_without_pairs():
    alone = consistency(answers_of([[1, 2]], [[1.0, 0.0]], [1]), np.array([False]))
    assert alone.all.weighted is None
    assert alone.all.pairs == 0
    assert alone.right is None


def run(*answers, xs="abcd"):
    """A run whose best answers to a, b … are these, where Y is right."""
    return [
        outcome(x, "Y", 1 if answer == "Y" else 5, answers={answer: 0.6})
        for x, answer in zip(xs, answers, strict=False)
    ]


def test_runs_by_hand():
    found = run_consistency([run("Y", "Y", "p", "q"), run("Y", "p", "p", "r"), run("p", "p", "p")])
    pairs = {(pair.first, pair.second): pair for pair in found.pairs}
    assert {key: (pair.questions, pair.same) for key, pair in pairs.items()} == {
        (0, 1): (4, 0.5),
        (0, 2): (3, pytest.approx(1 / 3)),
        (1, 2): (3, pytest.approx(2 / 3)),
    }
    # Right in one of the two: a and b, a and b, a.
    assert {key: (pair.right, pair.same_of_right) for key, pair in pairs.items()} == {
        (0, 1): (2, 0.5),
        (0, 2): (2, 0),
        (1, 2): (1, 0),
    }
    assert found.same == pytest.approx((1 / 2 + 1 / 3 + 2 / 3) / 3)
    assert found.same_of_right == pytest.approx(0.5 / 3)


def test_a_question_with_several_facts_counts_once():
    twice = [
        outcome("a", "Y", golds=("Y", "Z"), answers={"Y": 0.6}),
        outcome("a", "Z", 2, golds=("Y", "Z"), answers={"Y": 0.6}),
    ]
    found = run_consistency([[*twice, *run("p", xs="b")], run("Y", "q")])
    assert (found.pairs[0].questions, found.same, found.same_of_right) == (2, 0.5, 1)


def test_runs_without_a_common_question_are_refused():
    with pytest.raises(UsageError, match="no question in common"):
        run_consistency([run("Y", xs="a"), run("Y", xs="b")])
