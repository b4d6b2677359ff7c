"""The second round of unlearning changes the weights of the LM as its questions ask for it."""

import pytest
import torch
from agreement import plain

from askwell import Mixture


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_the_gradient_of_a_mixture_in_the_weights_of_the_lm_is_that_of_small_changes(name: str) -> None:
    lm = plain(name)
    mixture = Mixture(lm, "[X] lies in [Y] .", answers="one-token", lead_in="none").requires_grad_(False)
    lm.model.requires_grad_(True)
    mixture(["Paris", "Rome"], ["France", "Italy"]).sum().backward()
    moved = [(weights, weights.grad) for weights in lm.model.parameters() if weights.grad is not None]
    squares = sum(float((slope**2).sum()) for _, slope in moved)
    small, found = 1e-3 / squares**0.5, []
    with torch.no_grad():
        for sign in (1, -2):
            for weights, slope in moved:
                weights.add_(sign * small * slope)
            found.append(float(mixture(["Paris", "Rome"], ["France", "Italy"]).sum()))
    assert (found[0] - found[1]) / (2 * small) == pytest.approx(squares, rel=0.02)
