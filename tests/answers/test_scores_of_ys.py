"""Scores of given ys, with and without the token that ends them, against the public model's forward pass."""

import math

import pytest
import torch
from builders import tiny

from askwell.errors import BadOption
from askwell.lms.frozen import FrozenLM
from askwell.lms.vocabulary import token_text
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import MixtureSpec

YS = ["Rome", "Reykjavik", "Mary Cassatt", "Rome"]
TEMPLATE = "the capital of [X] is [Y]"


def by_hand(model, tokenizer, y: str, *, with_end: bool) -> float:
    ids = tokenizer(TEMPLATE.replace("[X]", "Italy").removesuffix(" [Y]"), add_special_tokens=False)["input_ids"]
    of_y = tokenizer(f" {y}", add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id] * with_end
    whole = [tokenizer.bos_token_id, *ids, *of_y]
    with torch.no_grad():
        log_probs = model(input_ids=torch.tensor([whole])).logits[0].log_softmax(-1)
    return sum(float(log_probs[at - 1, whole[at]]) for at in range(1 + len(ids), len(whole)))


def mixture_of(lm: FrozenLM, **choices) -> Mixture:
    return Mixture(lm, [TEMPLATE], MixtureSpec(begin="bos", lead_in="none", shots=0, **choices))


def test_many_ys_of_one_x():
    model, tokenizer = tiny.make_gpt2()
    mixture = mixture_of(FrozenLM(model, tokenizer), longest_answer=4)
    expected = [by_hand(model, tokenizer, y, with_end=True) for y in YS]
    found = mixture.log_probs("Italy", [*YS, "Massachusetts Massachusetts"])
    assert found.tolist() == pytest.approx([*expected, -math.inf], abs=1e-3)
    assert mixture.log_probs("Italy " * 100, YS).tolist() == [-math.inf] * len(YS)
    with pytest.raises(BadOption, match="list of ys"):
        mixture.log_probs("Italy", "Rome")


@pytest.mark.parametrize("walks", [True, False])
def test_candidates_without_their_ends(walks):
    model, tokenizer = tiny.make_gpt2()
    lm = FrozenLM(model, tokenizer)
    if not walks:
        lm.walk, lm.may_share_prefixes = None, False
    for end in ("token", "none"):
        replies = mixture_of(lm, end=end).ask("Italy", candidates=YS)
        scores = [by_hand(model, tokenizer, y, with_end=end == "token") for y in YS[:3]]
        expected = dict(zip(YS, torch.tensor(scores).softmax(0).tolist(), strict=False))
        assert {reply.y: reply.probability for reply in replies} == pytest.approx(expected, abs=1e-4)
    with pytest.raises(BadOption, match="candidates"):
        mixture_of(lm, end="none").ask("Italy")


def test_blank_tokens_are_shown_as_signs():
    model, tokenizer = tiny.make_gpt2()
    lm, names = FrozenLM(model, tokenizer), {"Ġ": "␣", "Ċ": "↵"}
    vocabulary = tokenizer.get_vocab()
    shown = {name: token_text(lm, vocabulary[name]) for name in names if name in vocabulary}
    assert shown
    assert shown == {name: names[name] for name in shown}
