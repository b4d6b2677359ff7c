"""Ways to weight prompts: their names, and what they compute."""

from typing import get_args

import pytest
import torch
from builders.specs import paper_spec
from builders.worlds import TEMPLATES, frozen

from askwell.mixture.mixture import Mixture
from askwell.prompts.weights import WEIGHTINGS, CombinedWeights, DataDependentWeights, StaticWeights
from askwell.specs.mixture_spec import WeightingName


def test_every_name_has_its_class() -> None:
    assert set(WEIGHTINGS) == set(get_args(WeightingName))
    for name in get_args(WeightingName):
        mixture = Mixture(frozen("bert"), TEMPLATES, paper_spec(weighting=name))
        assert type(mixture.weighting) is WEIGHTINGS[name]


def test_static_weights_are_the_same_for_every_x() -> None:
    weighting = StaticWeights(torch.tensor([0.2, 0.5, 0.3]).log() + 4)
    assert torch.allclose(weighting(None, 2).exp(), torch.tensor([[0.2, 0.5, 0.3]] * 2))
    assert weighting.temperature is None


def test_data_dependent_weights_by_hand() -> None:
    weighting = DataDependentWeights(torch.tensor([0.25, 0.75]).log())
    with torch.no_grad():
        weighting.log_temperature.fill_(torch.tensor(2.0).log())
    log_p_x = torch.tensor([[0.16, 0.04], [0.09, 0.09]]).log()
    # 0.25 √0.16 = 0.1 beside 0.75 √0.04 = 0.15; where x is equally probable, p(t | r) is left
    assert torch.allclose(weighting(log_p_x, 2).exp(), torch.tensor([[0.4, 0.6], [0.25, 0.75]]))
    assert weighting.temperature == pytest.approx(2.0)
    with pytest.raises(ValueError, match="need to know"):
        weighting(None, 2)


def test_combined_weights_by_hand() -> None:
    weighting = CombinedWeights(torch.tensor([0.25, 0.75]).log())
    with torch.no_grad():
        weighting.log_temperature.copy_(torch.tensor([2.0, 0.5]).log())
    log_p_x = torch.tensor([[0.16, 0.04]]).log()
    certainty = torch.tensor([[0.0, -torch.tensor(3.0).log() / 2]])
    # 0.25 √0.16 · 1 = 0.1 beside 0.75 √0.04 · exp(−2 · ln 3 / 2) = 0.05
    found = weighting(torch.stack([log_p_x, certainty], dim=2), 1)
    assert torch.allclose(found.exp(), torch.tensor([[2 / 3, 1 / 3]]))
    assert weighting.temperature is None  # there are two
