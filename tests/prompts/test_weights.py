"""Ways to weight prompts: their names, how specs read and write them, and that old runs keep their ids."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from builders.specs import paper_spec
from builders.worlds import TEMPLATES, frozen

from askwell.mixture.mixture import Mixture
from askwell.prompts.weights import WEIGHTINGS, DataDependentWeights, StaticWeights
from askwell.specs.mixture_spec import MixtureSpec, WeightingName
from askwell.specs.run_spec import RunSpec

STORE = Path(__file__).parents[1] / "fixtures" / "v0.1.0" / "store" / "runs"


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
    with pytest.raises(ValueError, match=r"need log p\(x"):
        weighting(None, 2)


@pytest.mark.parametrize("given", [{"data_dependent": True}, {"weighting": "data-dependent"}])
def test_a_weighting_is_read_by_its_old_name_and_its_new_one(given: dict[str, Any]) -> None:
    spec = MixtureSpec.model_validate({"deep": True, **given})
    assert spec == MixtureSpec(deep=True, weighting="data-dependent")
    assert spec.weighting == "data-dependent"
    assert spec.model_dump(exclude_unset=True) == {"deep": True, "data_dependent": True}
    assert MixtureSpec.model_validate_json(spec.model_dump_json()) == spec


def test_a_spec_is_written_as_in_version_0_1_0() -> None:
    spec = paper_spec(begin="space", lead_in="none", shots=0)
    assert list(spec.canonical.items()) == [
        ("combine", "mixture"), ("deep", False), ("data_dependent", False), ("initial", "words"), ("copies", 1),
        ("noise", 0.0), ("weights", "uniform"), ("seed", 0),
    ]  # fmt: skip
    assert MixtureSpec.of_0_1_0(spec.canonical) == spec


@pytest.mark.parametrize("folder", sorted(STORE.iterdir()), ids=lambda folder: folder.name[:8])
def test_runs_of_version_0_1_0_keep_their_ids(folder: Path) -> None:
    written = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
    spec = RunSpec.model_validate({**written, "mixture": MixtureSpec.of_0_1_0(written["mixture"])})
    assert spec.id == folder.name
    assert (spec.mixture.answers, spec.mixture.begin) == ("one-token", "space")
    assert spec.mixture.canonical == written["mixture"]
    if spec.training is not None:
        written["mixture"]["data_dependent"] = True
        assert '"data_dependent":true' in RunSpec.model_validate(written).canonical
