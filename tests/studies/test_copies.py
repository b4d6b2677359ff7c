"""How far prompts are apart, and how many pairs a start is worth, against values worked out by hand."""

import math
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
import copies
import transfer


def distance(*prompts):
    return copies.mean_distance(torch.tensor([prompts], dtype=torch.float64).log())


def test_the_distance_of_answers():
    assert distance([0.5, 0.5, 0], [0.5, 0.5, 0]) == pytest.approx(0, abs=1e-7)
    assert distance([1, 0, 0], [0, 0.5, 0.5]) == pytest.approx(1)
    # Between (1, 0) and (1/2, 1/2) lies (3/4, 1/4), with 2 - (3/4) log2 3 bits.
    half = math.sqrt(2 - 0.75 * math.log2(3) - 0.5)
    assert distance([1, 0], [0.5, 0.5]) == pytest.approx(half)
    assert distance([1, 0], [1, 0], [0, 1]) == pytest.approx(2 / 3), "the mean over three pairs"
    assert distance([1, 0]) == 0.0, "one prompt is nowhere"


def test_the_pairs_that_a_start_is_worth():
    known, losses = [0, 64, 256], [8.0, 4.0, 2.0]
    assert transfer.pairs_to_reach(9.0, losses, known) == "0"
    assert transfer.pairs_to_reach(6.0, losses, known) == "32"
    assert transfer.pairs_to_reach(3.0, losses, known) == "160"
    assert transfer.pairs_to_reach(1.0, losses, known) == "> 256"
