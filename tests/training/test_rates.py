"""Step sizes follow the LM's own scale, layer by layer, and the optimiser takes them."""

from itertools import pairwise

import pytest
import torch
from builders.specs import paper_spec
from builders.worlds import CAPITALS, FACTS, TEMPLATES, frozen

from askwell.mixture.mixture import Mixture
from askwell.specs.training_spec import TrainingSpec
from askwell.training.loop import train
from askwell.training.optimiser import (
    OF_HIDDEN,
    OF_WEIGHTS,
    OF_WORDS,
    Rates,
    choose_tuned,
    hidden_scales,
    optimizer_of,
    rates_of,
    step,
    word_scale,
)


def deep_mixture(name):
    mixture = Mixture(frozen(name), TEMPLATES, paper_spec(deep=True))
    return mixture, mixture.encode(FACTS)[0]


@pytest.mark.parametrize("name", ["bert", "gpt2", "bart"])
def test_the_scale_of_words_is_that_of_the_embedding_matrix(name):
    lm = frozen(name)
    table = lm.model.get_input_embeddings().weight.detach().double().numpy()
    factor = float(word_scale(lm)) / table.std(0, ddof=1).mean()
    assert factor == pytest.approx(getattr(lm.model.get_input_embeddings(), "embed_scale", 1.0), rel=1e-5)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_the_scale_of_a_layer_is_that_of_the_public_models_hidden_states(name):
    mixture, facts = deep_mixture(name)
    batch = mixture.pairs.sample(mixture.tuned, facts.xs, 5)
    scales = hidden_scales(mixture.lm, batch, mixture.vectors.detach())["layers"]
    stream = batch.streams["layers"]
    seen = mixture.lm.model(input_ids=stream.ids, attention_mask=stream.attention_mask, output_hidden_states=True)
    tokens = [hidden[stream.attention_mask].detach() for hidden in seen.hidden_states[1:]]
    expected = [float(hidden.std(0).median()) for hidden in tokens]
    until = len(expected) - (name in ("gpt2", "llama"))  # their last hidden states are those after a last norm
    assert scales[:until] == pytest.approx(expected[:until], rel=1e-4)
    assert len(scales) == len(expected)


def test_the_recipes_step_sizes():
    mixture, facts = deep_mixture("bert")
    cycle = rates_of(mixture, facts, TrainingSpec())
    assert cycle.vectors == pytest.approx(OF_WORDS * word_scale(mixture.lm))
    assert cycle.weights == OF_WEIGHTS
    scales = hidden_scales(mixture.lm, mixture.pairs.sample(mixture.tuned, facts.xs, 64), mixture.vectors.detach())[
        "layers"
    ]
    assert cycle.layers["layers"] == pytest.approx([OF_HIDDEN * scale for scale in scales])
    paper = rates_of(mixture, facts, TrainingSpec(recipe="paper"))
    assert (paper.vectors, paper.weights, paper.layers["layers"]) == (1e-3, 1e-3, [1e-3] * 3)
    chosen = rates_of(mixture, facts, TrainingSpec(learning_rate=0.5, layers_rate=0.25))
    assert (chosen.vectors, chosen.weights, chosen.layers["layers"]) == (0.5, 0.5, [0.25] * 3)


def test_a_larger_lm_scale_makes_larger_steps():
    small, large = frozen("bert"), frozen("bert")
    with torch.no_grad():
        large.model.get_input_embeddings().weight *= 3
    assert word_scale(large) == pytest.approx(3 * word_scale(small), rel=1e-5)


def test_the_first_step_of_each_part_and_layer_is_as_large_as_its_rate():
    """Adam's first step is the step size times the gradient's sign, wherever the gradient is not tiny."""
    mixture, _ = deep_mixture("bert")
    spec = TrainingSpec()
    choose_tuned(mixture, spec)
    rates = Rates(0.5, {"layers": [0.25, 0.125, 1.0]}, 0.0625)
    optimizer = optimizer_of(mixture, spec, rates)
    assert optimizer is not None
    start = {name: tensor.clone() for name, tensor in mixture.state_dict().items()}
    for parameter in mixture.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.ones_like(parameter)
    step(optimizer, 0.5)
    moved = {name: start[name] - tensor for name, tensor in mixture.state_dict().items()}
    torch.testing.assert_close(moved["vectors"], torch.full_like(moved["vectors"], 0.25))
    torch.testing.assert_close(moved["weighting.logits"], torch.full_like(moved["weighting.logits"], 0.03125))
    for layer, size in enumerate((0.125, 0.0625, 0.5)):
        of_layer = moved[f"deltas.layers.{layer}"]
        torch.testing.assert_close(of_layer, torch.full_like(of_layer, size))


@pytest.mark.parametrize(
    ("templates", "choices", "expected"),
    [
        (TEMPLATES[:1], {}, 0.9),
        (TEMPLATES[:2], {}, 0.7),
        (TEMPLATES[:2], {"pairs": 60}, 0.7),
        (TEMPLATES[:2], {"recipe": "paper"}, 0.9),
        (TEMPLATES[:2], {"beta1": 0.25}, 0.25),
        (TEMPLATES[:2], {"beta1": 0.0}, 0.0),
        (TEMPLATES[:2], {"recipe": "paper", "beta1": 0.5}, 0.5),
    ],
)
def test_the_second_step_remembers_the_first_by_beta1(templates, choices, expected):
    """With gradients 1 and 0, Adam's second step over its first is β1 / (1 + β1) · √((1 + β2) / β2)."""
    mixture, spec = Mixture(frozen("bert"), templates, paper_spec()), TrainingSpec(**choices)
    choose_tuned(mixture, spec)
    optimizer = optimizer_of(mixture, spec, Rates(1.0, {}, 1.0))
    assert optimizer is not None
    places = [mixture.vectors.detach().clone()]
    for gradient in (1.0, 0.0):
        for parameter in mixture.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.full_like(parameter, gradient)
        step(optimizer, 1.0)
        places.append(mixture.vectors.detach().clone())
    first, second = (before - after for before, after in pairwise(places))
    factor = expected / (1 + expected) * ((1 + spec.beta2) / spec.beta2) ** 0.5
    torch.testing.assert_close(second, factor * first, atol=1e-5, rtol=1e-4)


def test_what_was_used_is_told_by_the_result():
    mixture, _ = deep_mixture("bert")
    result = train(mixture, CAPITALS, TrainingSpec(pairs=60, threads=1))
    assert result.pairs == result.planned_pairs
    assert result.step_sizes["weights"] == OF_WEIGHTS
    assert len(result.step_sizes["layers"]["layers"]) == 3
    learned_from = result.learned_from
    assert (learned_from.pairs, learned_from.step_sizes) == (result.pairs, result.step_sizes)


def test_minutes_become_pairs_once_and_are_kept(tmp_path):
    def run(**options):
        mixture = Mixture(frozen("bert"), TEMPLATES, paper_spec())
        return train(mixture, CAPITALS, TrainingSpec(minutes=0.002, threads=1), folder=tmp_path, **options)

    planned = []

    def interrupt(progress):
        planned.append(progress.pairs)
        if progress.pairs_done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(progress=interrupt)
    result = run(resume=True, progress=lambda progress: planned.append(progress.pairs))
    assert set(planned) == {result.planned_pairs}
    assert result.finished
    assert result.planned_pairs > 0
