"""Annealed training: posteriors over prompts to a power that grows to 1, against bounds that are written out here."""

from typing import Any

import pytest
import torch
from builders.specs import paper_spec
from builders.worlds import CAPITALS, FACTS, REPEATED, TEMPLATES, frozen
from pydantic import ValidationError

from askwell.errors import BadOption
from askwell.mixture.mixture import Mixture
from askwell.runs.build_spec import setting_name
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training.loop import Objective, train
from askwell.training.optimiser import choose_tuned
from askwell.training.schedule import posterior_power

POWERS = [0.1, 0.5, 1.0]


def uneven(name, **spec):
    """A mixture whose weights differ, so that they matter in posteriors."""
    mixture = Mixture(frozen(name, "float64"), TEMPLATES, paper_spec(**spec))
    with torch.no_grad():
        mixture.weight_logits.copy_(torch.linspace(0.5, -0.5, len(TEMPLATES)))
    return mixture


def written_out_joint(mixture):
    """log p(t | r) + log p(y | t, x), from each prompt's whole distribution, one fact at a time."""
    encoded, _ = mixture.encode(FACTS)
    rows = [
        torch.stack(
            [mixture.word_log_probs(encoded.xs, torch.tensor([n]), t)[0, answer] for t in range(len(mixture.prompts))]
        )
        for n, answer in enumerate(encoded.answers)
    ]
    logits = mixture.weight_logits.detach()
    return torch.stack(rows).detach() + logits - logits.exp().sum().log()


def bound(joint, q, power):
    """Σ q log joint + H(q) / α, summed over facts: at α = 1 the evidence lower bound."""
    return (q * joint).sum() - (q * q.log()).sum() / power


def loss_of(mixture, method, power):
    encoded, _ = mixture.encode(FACTS)
    choose_tuned(mixture, TrainingSpec(method=method))
    return Objective(mixture.answering(kind=encoded.kind), encoded, method).loss(encoded.rows, power)


def slope(mixture, parameter, direction, q, power, step=1e-5):
    """How fast the bound grows if a parameter moves in this direction and q stays, by differences."""
    ends = []
    for sign in (1, -1):
        with torch.no_grad():
            parameter += sign * step * direction
            ends.append(bound(written_out_joint(mixture), q, power))
            parameter -= sign * step * direction
    return float(ends[0] - ends[1]) / (2 * step)


@pytest.mark.parametrize("method", ["gradient", "em"])
@pytest.mark.parametrize("power", POWERS)
def test_gradients_are_those_of_the_bound(power, method):
    mixture = uneven("bert")
    tempered = written_out_joint(mixture).exp() ** power
    q = tempered / tempered.sum(1, keepdim=True)
    loss = loss_of(mixture, method, power)
    torch.testing.assert_close(loss.posteriors, q.sum(0))
    if method == "gradient":
        assert float(loss.to_minimise.detach()) == pytest.approx(-float(bound(written_out_joint(mixture), q, power)))
    loss.to_minimise.backward()
    generator = torch.Generator().manual_seed(0)
    # EM's weights have a closed form and no gradient.
    for parameter in (mixture.vectors, mixture.weight_logits)[: 2 if method == "gradient" else 1]:
        assert parameter.grad is not None
        for _ in range(3):
            direction = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            expected = slope(mixture, parameter, direction, q, power)
            assert -float((parameter.grad * direction).sum()) == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("power", POWERS)
def test_no_other_posteriors_give_a_higher_bound(power):
    mixture = uneven("bert")
    joint = written_out_joint(mixture)
    highest = -float(loss_of(mixture, "gradient", power).to_minimise.detach())
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        q = torch.rand(joint.shape, generator=generator, dtype=joint.dtype).softmax(1)
        assert float(bound(joint, q, power)) < highest


def test_the_loss_that_is_reported_is_the_likelihoods_own():
    mixture = uneven("bert")
    expected = -float(written_out_joint(mixture).exp().sum(1).log().sum())
    for power in POWERS:
        assert loss_of(mixture, "em", power).negative_log_likelihood == pytest.approx(expected, rel=1e-9)


def test_at_a_small_power_all_prompts_share_every_fact():
    shares = loss_of(uneven("bert"), "em", 1e-9).posteriors / len(FACTS)
    assert shares.tolist() == pytest.approx([1 / len(TEMPLATES)] * len(TEMPLATES), abs=1e-6)


def test_the_weights_of_em_are_the_mean_of_the_tempered_posteriors():
    mixture = Mixture(frozen("bert", "float64"), TEMPLATES, paper_spec())
    tempered = written_out_joint(mixture).exp() ** 0.5
    expected = (tempered / tempered.sum(1, keepdim=True)).mean(0)
    one_step = TrainingSpec(method="em", anneal=0.5, tune_vectors=False, epochs=1, batch_facts=len(FACTS), threads=1)
    train(mixture, REPEATED, one_step)
    assert mixture.weights.tolist() == pytest.approx(expected.tolist(), abs=1e-12)


def test_the_power_grows_to_1_in_the_first_half():
    assert [posterior_power(0.2, step, 8) for step in range(8)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1, 1, 1])
    assert [posterior_power(1.0, step, 7) for step in range(7)] == [1.0] * 7


def test_it_changes_the_run_and_is_recorded():
    histories = []
    for anneal in (1.0, 0.1):
        mixture = Mixture(frozen("bert"), TEMPLATES, paper_spec())
        result = train(mixture, CAPITALS, method="em", anneal=anneal, pairs=120, threads=1)
        assert result.spec.anneal == anneal
        histories.append([line.train_loss for line in result.history[1:]])
    assert histories[0] != histories[1]
    assert "annealed" in setting_name(MixtureSpec(), TrainingSpec(anneal=0.5))


def test_where_it_makes_no_sense_it_is_refused():
    assert TrainingSpec(anneal=0.5).recipe == "cycle"
    assert TrainingSpec(anneal=1).recipe == "plateau"
    wrongs: list[dict[str, Any]] = [{"recipe": "paper"}, {"recipe": "plateau"}, {"classify": True}]
    for wrong in wrongs:
        with pytest.raises(ValidationError, match=r"leave out (the recipe|anneal)"):
            TrainingSpec(anneal=0.5, **wrong)
    for power in (0.0, 1.5, -1.0):
        with pytest.raises(ValidationError, match="anneal"):
            TrainingSpec(anneal=power)
    with pytest.raises(BadOption, match="`anneal` is for mixtures of several prompts"):
        train(Mixture(frozen("bert"), TEMPLATES[:1], paper_spec()), CAPITALS, anneal=0.5)
