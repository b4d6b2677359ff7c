"""The loops that askwell is measured against compute the same thing."""

from pathlib import Path

import pytest
import torch
from builders.specs import paper_spec
from builders.worlds import FACTS, TEMPLATES, frozen

from askwell.answers.one_token import OneTokenAnswers
from askwell.mixture.mixture import Mixture

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def plain_prompts(mixture):
    import plain_loop

    prompts = []
    for prompt in mixture.prompts:
        stream = prompt.question.streams["layers"]
        left, right = ([(token.id, token.prompt_token >= 0) for token in side] for side in (stream.left, stream.right))
        prompts.append(plain_loop.PlainPrompt(left, right, prompt.question.read_at, prompt.question.read_after_x))
    return prompts


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("name", ["bert", "roberta", "llama"])
def test_both_loops_agree_with_the_library(name, deep):
    import good_plain_loop
    import plain_loop

    lm = frozen(name)
    mixture = Mixture(lm, TEMPLATES, paper_spec(deep=deep, begin="space"))
    encoded, _ = mixture.encode(FACTS)
    plain = plain_loop.PlainMixture(lm.model, plain_prompts(mixture), deep=deep)
    with torch.no_grad():
        for number, rows in enumerate(mixture.pairs.rows):
            tokens = list(rows)
            plain.vectors[number].normal_()
            mixture.vectors[tokens] = plain.vectors[number]
            if deep:
                plain.deltas[number].normal_(std=0.1)
                for delta, of_layer in zip(mixture.layer_deltas["layers"], plain.deltas[number], strict=True):
                    delta[tokens] = of_layer
    every = torch.arange(len(encoded))
    expected = mixture.pairs.gold_log_probs(mixture.tuned, encoded.xs, encoded.gold_tokens, every)
    place = 0  # all these blanks are filled after a space
    facts = [
        plain_loop.PlainFact(
            encoded.xs.ids[place, i, : encoded.xs.lengths[place, i]].tolist(), int(encoded.gold_tokens[place, i])
        )
        for i in every.tolist()
    ]
    pairs = [(fact, number) for fact in facts for number in range(len(plain.prompts))]
    torch.testing.assert_close(
        plain_loop.log_probs(lm.model, plain, pairs).view_as(expected), expected, atol=5e-5, rtol=0
    )
    torch.testing.assert_close(good_plain_loop.log_probs(lm.model, plain, facts), expected, atol=5e-5, rtol=0)
    if not deep:
        whole = plain_loop.evaluate(lm.model, plain, facts)
        torch.testing.assert_close(whole, OneTokenAnswers(mixture).log_probs(encoded.xs, every), atol=5e-5, rtol=0)


def test_an_epoch_of_either_loop_lowers_the_loss():
    import good_plain_loop
    import plain_loop

    for loop in (plain_loop, good_plain_loop):
        lm = frozen("bert")
        if loop is good_plain_loop:
            good_plain_loop.freeze(lm.model)
        mixture = Mixture(lm, TEMPLATES, paper_spec())
        encoded, _ = mixture.encode(FACTS)
        facts = [
            plain_loop.PlainFact(
                encoded.xs.ids[0, i, : encoded.xs.lengths[0, i]].tolist(), int(encoded.gold_tokens[0, i])
            )
            for i in range(len(encoded))
        ]
        plain = plain_loop.PlainMixture(lm.model, plain_prompts(mixture), deep=False)
        optimizer = torch.optim.Adam(plain_loop.tuned_parameters(plain), lr=0.01)
        generator = torch.Generator().manual_seed(0)
        losses = [loop.train_epoch(lm.model, plain, facts, optimizer, generator) for _ in range(6)]
        assert losses[-1] < losses[0] - 0.1
        assert float(plain.weights.sum()) == pytest.approx(1.0, abs=1e-5)
