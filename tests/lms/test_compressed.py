"""LMs with rounded or zeroed weights."""

import numpy as np
import pytest
import torch
from builders import tiny

import askwell
from askwell.errors import BadOption
from askwell.lms.compressed import pruned, quantised, round_to_bits, without_smallest

NAMES = ["bert", "gpt2", "llama", "bart"]


def slowly_rounded(row, bits):
    """One row, weight by weight: the nearest of 2^bits values between its group's extremes."""
    found = []
    for start in range(0, len(row), 32):
        group = row[start : start + 32].astype(np.float64)
        values = np.linspace(group.min(), group.max(), 2**bits)
        found += [values[np.abs(values - weight).argmin()] for weight in group]
    return np.array(found)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("columns", [32, 48, 7])
def test_rounding_takes_the_nearest_of_evenly_spaced_values(bits, columns):
    weights = torch.randn(3, columns, generator=torch.Generator().manual_seed(bits))
    expected = np.stack([slowly_rounded(row, bits) for row in weights.numpy()])
    np.testing.assert_allclose(round_to_bits(weights, bits).numpy(), expected, atol=1e-6)


def test_a_group_of_equal_weights_stays():
    assert round_to_bits(torch.full((2, 40), 0.3), 4).tolist() == torch.full((2, 40), 0.3).tolist()


def test_pruning_zeroes_the_smallest():
    weights = torch.tensor([[3.0, -0.1, 0.5], [-2.0, 0.2, -0.4]])
    assert without_smallest(weights, 0.5).tolist() == [[3.0, 0.0, 0.5], [-2.0, 0.0, 0.0]]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", [lambda lm: quantised(lm, 4), lambda lm: pruned(lm, 0.5)])
def test_only_the_layers_matrices_change(name, change):
    lm = askwell.load_lm(*tiny.TINY[name]())
    before = {key: tensor.clone() for key, tensor in lm.model.state_dict().items()}
    changed = change(lm)
    after = changed.model.state_dict()
    different = {key for key, tensor in before.items() if not torch.equal(tensor, after[key])}
    assert different
    assert all(before[key].dim() == 2 for key in different)
    assert torch.equal(lm.word_vectors(torch.arange(5)), changed.word_vectors(torch.arange(5)))
    assert all(torch.equal(tensor, lm.model.state_dict()[key]) for key, tensor in before.items())
    assert lm.identity.differences(changed.identity) == ["weights"]


def test_gpt2_rows_are_outputs_as_in_other_lms():
    """GPT-2 stores its matrices the other way round; groups run along the inputs of one output all the same."""
    lm = askwell.load_lm(*tiny.TINY["gpt2"]())
    weight = lm.model.transformer.h[0].attn.c_attn.weight
    changed = quantised(lm, 2).model.transformer.h[0].attn.c_attn.weight
    expected = np.stack([slowly_rounded(row, 2) for row in weight.T.numpy()])
    np.testing.assert_allclose(changed.T.numpy(), expected, atol=1e-6)


def test_what_cannot_be_done_is_refused():
    lm = askwell.load_lm(*tiny.TINY["bert"]())
    for change in (
        lambda: quantised(lm, 0),
        lambda: quantised(lm, 16),
        lambda: pruned(lm, 1.0),
        lambda: pruned(lm, 0.0),
    ):
        with pytest.raises(BadOption):
            change()
