import pytest
from builders.outcomes import outcome

from askwell.errors import UsageError
from askwell.evaluation.calibration import questions_of


def test_an_x_is_asked_once():
    answers = {"A": 0.6, "B": 0.3}
    asked = questions_of(
        [
            outcome("x", "B", 1, golds=("A", "B"), raw_rank=2, answers=answers),
            outcome("x", "A", 1, golds=("A", "B"), answers=answers),
            outcome("x", "A", 2, relation="s", answers={"C": 0.9}),
        ]
    )
    assert asked.confidences.tolist() == [0.6, 0.9]
    assert asked.right.tolist() == [True, False]


def test_what_is_right():
    asked = questions_of(
        [
            outcome("gold of another split", "B", 1, golds=("A", "B"), raw_rank=2, answers={"A": 0.5}),
            outcome("written otherwise", "Paris", 1, raw_rank=1, answers={"paris": 0.5}),
            outcome("only the filtered rank", "B", 1, golds=("B", "C"), raw_rank=2, answers={"c": 0.5}),
            outcome("a tie at the top", "B", 1.5, answers={"D": 0.5, "B": 0.5}),
        ]
    )
    assert asked.right.tolist() == [True, True, False, False]


def test_no_outcomes_are_refused():
    with pytest.raises(UsageError):
        questions_of([])
