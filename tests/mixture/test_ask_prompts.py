"""What each prompt answers by itself is what a mixture of that prompt alone answers."""

from dataclasses import replace

import pytest
from builders import tiny
from test_ask_open import askable

from askwell.answers.candidates import as_candidates
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import AnswerKind, MixtureSpec

TEMPLATES = ["[X] is in [Y] .", "the river of [X] ([Y])", "[X] likes [Y] ."]
WAYS = {
    "any length": (AnswerKind(any_length=True, longest=2), None),
    "one token": (AnswerKind(), None),
    "candidates": (AnswerKind(any_length=True, longest=6), ["Rome", "Paris", "Oslo"]),
    "labels": (AnswerKind(), {"south": ["Rome", "Quito"], "north": ["Oslo"]}),
    "one-token candidates": (AnswerKind(), ["Rome", "Paris"]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_each_prompt_answers_as_if_it_were_alone(name, way):
    kind, candidates = WAYS[way]
    if name == "bert" and kind.any_length:
        kind = replace(kind, log_lengths=(-1.0,) * kind.longest)
    lm = FrozenLM(*tiny.TINY[name](), name=name)
    spec = MixtureSpec(begin="space")
    mixture = Mixture(lm, TEMPLATES, spec)
    mixture.answer_kind = kind
    mixture.weight_logits.data[2] = float("-inf")  # dropped
    (replies,) = mixture.answering(as_candidates(candidates)).ask_each_prompt(["Quito"])
    assert [reply.number for reply in replies] == [0, 1]
    for reply in replies:
        alone = Mixture(lm, [TEMPLATES[reply.number]], spec)
        alone.answer_kind = kind
        best = alone.ask("Quito", top=1, candidates=candidates)[0]
        assert (reply.y, reply.probability) == (best.y, pytest.approx(best.probability, rel=1e-4))


def test_of_a_product_each_prompt_is_asked_by_itself():
    mixture, _ = askable("gpt2")
    product = Mixture(mixture.lm, TEMPLATES[::2], MixtureSpec(begin="space", combine="product"))
    product.answer_kind = mixture.answer_kind
    (replies,) = product.answering().ask_each_prompt(["Paris"])
    for template, reply in zip(TEMPLATES[::2], replies, strict=True):
        alone = Mixture(mixture.lm, [template], MixtureSpec(begin="space"))
        alone.answer_kind = mixture.answer_kind
        best = alone.ask("Paris", top=1)[0]
        assert (reply.y, reply.probability) == (best.y, pytest.approx(best.probability, rel=1e-4))


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_special_tokens_are_no_one_token_answers(name):
    lm = FrozenLM(*tiny.TINY[name](), name=name)
    mixture = Mixture(lm, TEMPLATES, MixtureSpec(begin="space", answers="one-token"))
    special = {lm.tokenizer.unk_token, lm.tokenizer.eos_token, lm.tokenizer.mask_token} - {None}
    every = mixture.token_words.count
    given = [reply.y for reply in mixture.ask("Paris", top=every) if reply.probability > 0]
    assert special
    assert not special & {*given}
    assert len(given) >= every - 2 * len(lm.tokenizer.all_special_ids)
