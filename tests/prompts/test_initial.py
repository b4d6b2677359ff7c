"""The vectors that soft prompts start from."""

from typing import Any

import pytest
import reference
import torch
from agreement import ALL, exact, pieces, plain, usable
from builders import tiny
from builders.specs import paper_spec
from pydantic import ValidationError

from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import MixtureSpec

LONG = [f"The capital of [X] is the city of its {word} and [Y] ." for word in ("Rome", "Lima", "Peru", "Oslo")]


@pytest.mark.parametrize("name", ALL)
def test_words_start_as_the_lms_own_embeddings(name: str) -> None:
    templates = [template for template in usable(name) if not template.startswith("[X], its")]
    if name in ("gpt2", "llama", "llama-metaspace"):  # the reference's pieces go on after y
        templates = ["Boston born [X] was in [Y]"]
    mixture = Mixture(plain(name), templates, paper_spec())
    hard = [reference.hard_vectors(plain(name).model, pieces(name, template)) for template in templates]
    assert torch.equal(mixture.vectors, torch.cat(hard))
    assert torch.equal(mixture.initial_vectors, mixture.vectors)
    assert not mixture.deltas


@pytest.mark.parametrize("name", ALL)
def test_deltas_start_at_zero(name: str) -> None:
    mixture = Mixture(plain(name), usable(name), paper_spec(deep=True))
    tokens = mixture.vectors.shape[0]
    stacks = reference.stacks(plain(name).model)
    assert set(mixture.deltas) == set(stacks)
    for stack, blocks in stacks.items():
        deltas = list(mixture.deltas[stack].parameters())
        assert [delta.shape for delta in deltas] == [(tokens, plain(name).model.config.hidden_size)] * len(blocks)
        assert not any(delta.any() for delta in deltas)


@pytest.mark.parametrize("initial", ["random", "random-full"])
def test_random_vectors_fit_the_word_embeddings(initial: str) -> None:
    lm = exact("bert")
    everything = lm.model.get_input_embeddings()(torch.arange(len(lm.tokenizer)))
    prompts = LONG * 60  # about 2,600 draws
    spec = MixtureSpec.model_validate({"initial": initial, "seed": 1})
    draws = Mixture(lm, prompts, spec).vectors.detach()
    assert len(draws) == 60 * 4 * 11
    spread = everything.std(0)
    assert ((draws.mean(0) - everything.mean(0)).abs() < 5 * spread / len(draws) ** 0.5).all()
    assert ((draws.std(0) / spread - 1).abs() < 0.08).all()


def test_a_full_covariance_keeps_correlations() -> None:
    """Two dimensions are made to rise together: independent draws lose that, draws with a full covariance do not."""
    tiny_lm: Any = tiny.TINY["bert"]()
    model, tokenizer = tiny_lm
    with torch.no_grad():
        weight = model.get_input_embeddings().weight
        weight[:, 1] = 2 * weight[:, 0] + 0.01 * weight[:, 1]
    lm = FrozenLM(model, tokenizer, dtype=torch.float64)
    correlations = {}
    for initial in ("random", "random-full"):
        vectors = Mixture(lm, LONG * 20, MixtureSpec.model_validate({"initial": initial})).vectors.detach()
        correlations[initial] = float(torch.corrcoef(vectors[:, :2].T)[0, 1])
    assert correlations["random-full"] > 0.999
    assert abs(correlations["random"]) < 0.15


def test_random_prompts_keep_their_length_and_their_blanks() -> None:
    lm = plain("bert")
    words, random = Mixture(lm, LONG, paper_spec()), Mixture(lm, LONG, paper_spec(initial="random"))
    assert words.vectors.shape == random.vectors.shape
    assert [prompt.question for prompt in words.prompts] == [prompt.question for prompt in random.prompts]
    assert not (words.vectors == random.vectors).any()


@pytest.mark.parametrize("settings", [{"initial": "random"}, {"noise": 0.3}, {"copies": 2, "noise": 0.3}])
def test_the_seed_decides(settings: dict[str, object]) -> None:
    def vectors(seed: int) -> torch.Tensor:
        return Mixture(plain("bert"), LONG, MixtureSpec.model_validate(settings | {"seed": seed})).vectors.detach()

    assert torch.equal(vectors(1), vectors(1))
    assert not (vectors(1) == vectors(2)).any()


def test_copies_start_near_their_prompt_and_apart() -> None:
    lm = exact("roberta")
    mixture = Mixture(lm, LONG[:2], paper_spec(copies=3, noise=0.2))
    assert [prompt.template.text for prompt in mixture.prompts] == [LONG[0]] * 3 + [LONG[1]] * 3
    assert mixture.weights.tolist() == pytest.approx([1 / 6] * 6)
    original = Mixture(lm, LONG[:2], paper_spec()).vectors.detach().view(2, 1, 11, -1)
    moves = mixture.vectors.detach().view(2, 3, 11, -1) - original
    assert len(torch.unique(moves.view(6, -1), dim=0)) == 6
    deviation = lm.model.get_input_embeddings().weight.std(0)
    assert float((moves / deviation).std()) == pytest.approx(0.2, rel=0.1)
    assert torch.equal(mixture.initial_vectors, mixture.vectors), "the penalty is counted from where a copy starts"


REFUSED = {
    "copies without noise": ({"copies": 2}, "set noise above 0"),
    "no copies": ({"copies": 0}, "copies"),
    "negative noise": ({"noise": -0.1}, "noise"),
    "deep product": ({"combine": "product", "deep": True}, "hard prompts and static weights"),
    "data-dependent product": (
        {"combine": "product", "weighting": "data-dependent"},
        "hard prompts and static weights",
    ),
    "unknown weighting": ({"weighting": "mine"}, "weighting"),
    "unknown key": ({"depth": 3}, "depth"),
    "unknown initialisation": ({"initial": "zero"}, "initial"),
    "unknown weights": ({"weights": "mine"}, "weights"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_specs_that_are_refused(case: str) -> None:
    settings, message = REFUSED[case]
    with pytest.raises(ValidationError, match=message):
        MixtureSpec.model_validate(settings)


def test_a_spec_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        paper_spec().deep = True  # ty: ignore[invalid-assignment]


def test_random_copies_need_no_noise() -> None:
    mixture = Mixture(plain("bert"), LONG[:1], paper_spec(copies=2, initial="random"))
    first, second = mixture.vectors.detach().chunk(2)
    assert not (first == second).any()
