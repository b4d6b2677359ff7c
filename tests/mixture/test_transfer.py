"""A mixture of one LM, asked of another."""

import copy

import pytest
import torch
from builders import tiny
from builders.worlds import CAPITALS, PAIRS, TEMPLATES

import askwell
from askwell.mixture import transfer
from askwell.mixture.mixture import Mixture

XS, YS = [x for x, _ in PAIRS[:4]], [y for _, y in PAIRS[:4]]


def tuned(lm, **choices):
    """A mixture whose vectors and weights were moved at random, as if it had been tuned."""
    mixture = Mixture(lm, TEMPLATES, answers="one-token", **choices)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in mixture.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return mixture


@pytest.mark.parametrize("name", ["bert", "gpt2", "bart"])
@pytest.mark.parametrize("choices", [{}, {"deep": True}, {"weighting": "data-dependent"}])
def test_to_the_same_lm_nothing_changes(name, choices):
    lm = askwell.load_lm(*tiny.TINY[name]())
    mixture = tuned(lm, **choices)
    same = mixture.transfer(lm)
    assert same.transferred.is_copy
    torch.testing.assert_close(same.vectors, mixture.vectors, rtol=0, atol=0)
    for own, other in zip(same.deltas.parameters(), mixture.deltas.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=0)
    torch.testing.assert_close(same(XS, YS), mixture(XS, YS))


def test_to_a_changed_copy_vectors_keep_their_distance_from_words():
    model, tokenizer = tiny.TINY["bert"]()
    changed = copy.deepcopy(model)
    with torch.no_grad():
        words = changed.get_parameter("bert.embeddings.word_embeddings.weight")
        words += 0.01 * torch.randn(words.shape)
    before, after = askwell.load_lm(model, tokenizer), askwell.load_lm(changed, tokenizer)
    mixture = tuned(before)
    other = mixture.transfer(after)
    torch.testing.assert_close(other.vectors - other.initial_vectors, mixture.vectors - mixture.initial_vectors)


def test_to_a_rotated_space_of_word_vectors_changes_are_rotated():
    """BERT's word vectors turned by an orthogonal matrix, and scaled: what tuning added is turned and scaled alike."""
    model, tokenizer = tiny.TINY["bert"]()
    turned = copy.deepcopy(model)
    words = turned.get_parameter("bert.embeddings.word_embeddings.weight")
    rotation = torch.linalg.qr(torch.randn(words.shape[1], words.shape[1], generator=torch.Generator().manual_seed(1)))[
        0
    ]
    with torch.no_grad():
        words.copy_(2 * words @ rotation)
    mixture = tuned(askwell.load_lm(model, tokenizer))
    other = Mixture(askwell.load_lm(turned, tokenizer), TEMPLATES, answers="one-token")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "_RIDGE", 1e-9)
        patch.setattr(transfer, "are_copies", lambda *_: False)
        transfer.carry_over(mixture, other, range(len(mixture.prompts)))
    expected = 2 * (mixture.vectors - mixture.initial_vectors) @ rotation
    torch.testing.assert_close(other.vectors - other.initial_vectors, expected, rtol=1e-3, atol=1e-3)


def test_between_tokenizers_every_word_finds_its_counterpart():
    mixture = tuned(askwell.load_lm(*tiny.TINY["bert"]()))
    other = mixture.transfer(askwell.load_lm(*tiny.TINY["roberta"]()))
    assert not other.transferred.is_copy
    assert other.transferred.matched_tokens == len(other.vectors)
    assert other.transferred.shared_words > 30
    assert torch.isfinite(other(XS, YS)).all()
    assert (other.vectors != other.initial_vectors).any(1).all()
    torch.testing.assert_close(other.weights, mixture.weights)


def test_another_lm_begins_its_sentences_as_it_would_in_a_run_of_its_own():
    """A masked LM has no choice, so what a causal LM begins with cannot come from it; between copies it stays."""
    causal = askwell.load_lm(*tiny.TINY["gpt2"]())
    own = Mixture(causal, TEMPLATES, answers="one-token", relation=CAPITALS)
    other = tuned(askwell.load_lm(*tiny.TINY["bert"]())).transfer(causal, CAPITALS)
    assert own.spec.begin == max(own.spec.context_scores.begins, key=own.spec.context_scores.begins.__getitem__)
    assert other.spec.begin == own.spec.begin != "space"
    assert tuned(causal, begin="space").transfer(causal, CAPITALS).spec.begin == "space"


def test_prompts_that_the_other_lm_cannot_use_are_left_out():
    templates = ["[X] lies in [Y] .", "[Y] is the capital of [X] ."]
    mixture = Mixture(askwell.load_lm(*tiny.TINY["bert"]()), templates, answers="one-token")
    with torch.no_grad():
        mixture.weight_logits.copy_(torch.tensor([0.2, 0.8]).log())
    other = mixture.transfer(askwell.load_lm(*tiny.TINY["gpt2"]()))
    assert [one.template.text for one in other.left_out_prompts] == [templates[1]]
    assert other.weights.tolist() == [1.0]


def test_spellings_are_cut_where_both_tokenizers_cut():
    assert transfer._aligned(["the", "cap", "ital"], ["the", "capi", "tal"]) == [([0], [0]), ([1, 2], [1, 2])]
    cut = transfer._aligned(["the", "capital", "of"], ["the", "cap", "ital", "of"])
    assert cut == [([0], [0]), ([1], [1, 2]), ([2], [3])]
    assert transfer._aligned(["the"], ["a"]) == []
