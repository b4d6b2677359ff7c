"""Ranks against the reference, one fact at a time."""

import math

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from askwell.answers.listed import rank_golds
from askwell.errors import NotFinite

LEVELS = st.sampled_from([-math.inf, -7.5, -3.0, -1.25, -0.5])  # few, so that many are equal


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[list[float]], list[int], list[list[int]]]:
    answers = draw(st.integers(2, 9))
    rows, golds, others = [], [], []
    for _ in range(draw(st.integers(1, 4))):
        rows.append(draw(st.lists(LEVELS, min_size=answers, max_size=answers)))
        gold = draw(st.integers(0, answers - 1))
        golds.append(gold)
        rest = [answer for answer in range(answers) if answer != gold]
        others.append(draw(st.lists(st.sampled_from(rest), unique=True, max_size=answers - 1)))
    return rows, golds, others


@settings(max_examples=300)
@given(cases())
def test_ranks_against_the_reference(case: tuple[list[list[float]], list[int], list[list[int]]]) -> None:
    rows, golds, others = case
    most = max(map(len, others))
    padded = torch.tensor([row + [-1] * (most - len(row)) for row in others], dtype=torch.long).view(len(rows), most)
    ranked = rank_golds(torch.tensor(rows), torch.tensor(golds), padded)
    for number, row in enumerate(rows):
        assert float(ranked.raw[number]) == reference.rank(row, golds[number])
        assert float(ranked.filtered[number]) == reference.rank(row, golds[number], others[number])
        assert float(ranked.log_probabilities[number]) == row[golds[number]]


def test_ranks_by_hand() -> None:
    log_probs = torch.tensor([[-1.0, -2.0, -2.0, -3.0, -2.0]] * 4)
    golds = torch.tensor([0, 1, 3, 3])
    others = torch.tensor([[-1, -1], [2, -1], [-1, -1], [0, 4]])
    ranked = rank_golds(log_probs, golds, others)
    assert ranked.raw.tolist() == [1.0, 3.0, 5.0, 5.0]  # the second: one before it, two as probable
    assert ranked.filtered.tolist() == [1.0, 2.5, 5.0, 3.0]


def test_without_other_golds() -> None:
    ranked = rank_golds(torch.tensor([[-1.0, -2.0]]), torch.tensor([1]), torch.empty(1, 0, dtype=torch.long))
    assert (ranked.raw.tolist(), ranked.filtered.tolist()) == ([2.0], [2.0])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_an_error_wherever_it_stands(bad: float) -> None:
    for place in range(3):
        log_probs = torch.tensor([[-1.0, -2.0, -3.0], [-1.0, -2.0, -3.0]])
        log_probs[1, place] = bad
        with pytest.raises(NotFinite, match="not finite"):
            rank_golds(log_probs, torch.tensor([0, 0]), torch.tensor([[1], [1]]))
        with pytest.raises(ValueError, match="not finite"):
            reference.rank(log_probs[1], 0)
