"""LMs changed in memory: rounded and pruned weights against plain loops, and their identity."""

import math

import pytest
import torch
from builders import tiny

from askwell.errors import BadOption
from askwell.lms.changed import changed_lm, rounded, without_smallest
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm


def _plainly_rounded(row: list[float], bits: int) -> list[float]:
    made = []
    for begin in range(0, len(row), 32):
        group = row[begin : begin + 32]
        low, step = min(group), (max(group) - min(group)) / (2**bits - 1)
        made += [low + step * math.floor((weight - low) / step + 0.5) if step else weight for weight in group]
    return made


@pytest.mark.parametrize("bits", [8, 4, 3, 2])
def test_rounding_is_that_of_a_plain_loop(bits: int) -> None:
    matrix = torch.randn(5, 77, generator=torch.Generator().manual_seed(bits)).double().float()
    matrix[2, 32:64] = 0.25  # a group of equal weights has no step
    expected = torch.tensor([_plainly_rounded(row, bits) for row in matrix.tolist()])
    torch.testing.assert_close(rounded(matrix, bits), expected, rtol=1e-5, atol=1e-6)
    values = {round(weight, 4) for weight in rounded(matrix, bits)[0, :32].tolist()}
    assert len(values) <= 2**bits


def test_pruning_keeps_the_largest() -> None:
    matrix = torch.randn(7, 11, generator=torch.Generator().manual_seed(0))
    pruned = without_smallest(matrix, 0.3)
    order = sorted(range(77), key=lambda at: abs(matrix.reshape(-1)[at].item()))
    zero = set(order[:23])
    assert {at for at in range(77) if pruned.reshape(-1)[at] == 0} == zero
    assert all(pruned.reshape(-1)[at] == matrix.reshape(-1)[at] for at in range(77) if at not in zero)


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2", "bart"])
def test_a_changed_copy_has_an_identity_of_its_own(name: str) -> None:
    lm = FrozenLM(*tiny.TINY[name]())
    before = {key: tensor.clone() for key, tensor in lm.model.state_dict().items()}
    four, again = changed_lm(lm, bits=4), changed_lm(lm, bits=4)
    assert four.identity == again.identity
    both = changed_lm(lm, bits=4, pruned=0.5)
    digests = {one.identity.digest for one in (lm, four, changed_lm(lm, bits=3), changed_lm(lm, pruned=0.5), both)}
    assert len(digests) == 5
    assert both.identity.name.endswith("(50 % pruned, 4 bits)")
    assert all(torch.equal(tensor, before[key]) for key, tensor in lm.model.state_dict().items())
    assert torch.equal(four.model.get_input_embeddings().weight, lm.model.get_input_embeddings().weight)


def test_what_cannot_be_is_refused_in_a_sentence() -> None:
    lm = load_lm("testbed:causal")
    with pytest.raises(BadOption, match="choose 8, 4, 3 or 2") as refused:
        changed_lm(lm, bits=5)
    assert refused.value.for_command_line().startswith("--after-bits 5")
    with pytest.raises(BadOption, match="between 0 and 1"):
        changed_lm(lm, pruned=1.5)
