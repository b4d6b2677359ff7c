"""Types and shapes are checked while tests run: types at every call, shapes at some."""

import pytest
import torch
from beartype.roar import BeartypeCallHintParamViolation
from builders.checking import EVERY, FULL
from jaxtyping import TypeCheckError

from askwell.answers.strategy import best_of_rows, sum_dtype
from askwell.prompts.weights import StaticWeights


@pytest.mark.parametrize("test", ["one", "another"])
def test_a_wrong_shape_is_found_at_the_first_call_in_each_test_and_at_one_of_the_next_sixteen_later(test):
    right, wrong = torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.long)
    with pytest.raises(TypeCheckError, match="values"):
        best_of_rows(wrong, None)
    for _ in range(100):
        best_of_rows(right, None)
    found = 0
    for _ in range(EVERY):
        try:
            best_of_rows(wrong, None)
        except TypeCheckError:
            found += 1
    assert found == (EVERY if FULL else 1)


def test_methods_and_results_are_checked_too():
    weights = StaticWeights(torch.zeros(3))
    with pytest.raises(TypeCheckError, match="evidence"):
        weights.forward(torch.zeros(2), 2)


def test_a_wrong_type_is_found_at_every_call():
    for _ in range(50):
        with pytest.raises(BeartypeCallHintParamViolation):
            sum_dtype("no LM")  # ty: ignore[invalid-argument-type]
