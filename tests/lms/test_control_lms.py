"""Control LMs are drawn as documented, answer as other LMs do, and leave the LM and the global random state alone."""

import pytest
import torch
from builders import tiny
from builders.specs import paper_spec
from builders.worlds import CAPITALS, TEMPLATES, frozen

from askwell.evaluation.examine import evaluate_split
from askwell.lms.changed import control_lm
from askwell.mixture.mixture import Mixture
from askwell.specs.run_spec import ControlKind
from askwell.specs.training_spec import TrainingSpec
from askwell.training.loop import train

KINDS: tuple[ControlKind, ...] = ("random-weights", "random-embeddings")


def weights(lm):
    return {name: tensor.clone() for name, tensor in lm.model.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", list(tiny.TINY))
def test_every_lm_has_controls_that_can_be_asked(name, kind):
    lm = frozen(name)
    before, state = weights(lm), torch.get_rng_state()
    control = control_lm(lm, kind, 3)
    assert torch.equal(torch.get_rng_state(), state)
    assert same(weights(lm), before)
    assert control.identity.name == f"{name} ({kind.replace('-', ' ')}, seed 3)"
    assert control.identity.differences(lm.identity) == ["weights"]
    assert (control.walk is None) == (lm.walk is None)
    assert (control.device, control.dtype, type(control.model)) == (lm.device, lm.dtype, type(lm.model))
    assert not any(parameter.requires_grad for parameter in control.model.parameters())
    assert not {t.data_ptr() for t in control.model.parameters()} & {t.data_ptr() for t in lm.model.parameters()}
    mixture = Mixture(control, TEMPLATES, paper_spec(deep=True))
    train(mixture, CAPITALS, TrainingSpec(epochs=1, threads=1))
    assert evaluate_split(mixture, CAPITALS).outcomes


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides(kind):
    lm = frozen("bert")
    first = control_lm(lm, kind, 1)
    torch.rand(5)
    again, other = control_lm(lm, kind, 1), control_lm(lm, kind, 2)
    assert same(weights(first), weights(again))
    assert first.identity == again.identity
    assert not same(weights(first), weights(other))
    assert first.identity.differences(other.identity)


def test_random_weights_are_those_of_the_class():
    """BERT's own: matrices of standard deviation 0.02, biases 0, norms 1; none is the LM's."""
    lm = frozen("bert")
    control = control_lm(lm, "random-weights", 0)
    torch.manual_seed(0)
    expected = type(lm.model)(lm.model.config)
    assert same(weights(control), dict(expected.state_dict()))
    known = dict(lm.model.named_parameters())
    for name, parameter in control.model.named_parameters():
        assert not torch.equal(parameter, known[name]), name
        if parameter.ndim > 1:
            assert float(parameter.std()) == pytest.approx(lm.model.config.initializer_range, rel=0.2)
        else:
            assert (parameter == float(name.endswith("weight"))).all()


@pytest.mark.parametrize("name", ["bert", "albert", "bart", "llama"])
def test_random_embeddings_change_nothing_else(name):
    lm = frozen(name)
    control = control_lm(lm, "random-embeddings", 0)
    table = lm.model.get_input_embeddings().weight
    drawn = control.model.get_input_embeddings().weight
    # A sample of n numbers: the mean is off by some standard deviation / √n, the standard deviation by half of it.
    error = float(table.std()) / table.numel() ** 0.5
    assert float(drawn.mean()) == pytest.approx(float(table.mean()), abs=4 * error)
    assert float(drawn.std()) == pytest.approx(float(table.std()), abs=4 * error)
    assert abs(float(torch.corrcoef(torch.stack([table.flatten(), drawn.flatten()]))[0, 1])) < 0.1
    tied = lm.model.get_output_embeddings().weight is table
    assert (control.model.get_output_embeddings().weight is drawn) == tied
    after = dict(control.model.named_parameters())
    changed = [name for name, parameter in lm.model.named_parameters() if not torch.equal(parameter, after[name])]
    assert len(changed) == 1


def test_precision_is_that_of_the_lm():
    lm = frozen("llama", "bfloat16")
    for kind in KINDS:
        control = control_lm(lm, kind, 0)
        assert control.dtype == torch.bfloat16
        assert {parameter.dtype for parameter in control.model.parameters()} == {torch.bfloat16}
    exact = control_lm(frozen("llama"), "random-weights", 0)
    assert control_lm(lm, "random-weights", 0).identity.tensors_sha256 == exact.identity.tensors_sha256
