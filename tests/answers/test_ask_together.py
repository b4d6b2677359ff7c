"""Mixtures that are asked together answer as each does alone."""

from typing import Any

import pytest
import torch
from builders.worlds import CAPITALS, TEMPLATES, frozen

from askwell.answers.candidates import Candidates
from askwell.answers.one_token import AskedTogether, AskedX, best_first
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training.loop import train

XS = ["Paris", "Reykjavik", "Mary Cassatt", "Oslo"]


def mixtures_of(name: str) -> list[Mixture]:
    """Shallow and deep, tuned and not, with weights that depend on x, a product, and one that may choose."""
    lm = frozen(name)
    one: dict[str, Any] = {"answers": "one-token"}
    made = [
        Mixture(lm, TEMPLATES[:1], MixtureSpec(**one)),
        Mixture(lm, TEMPLATES, MixtureSpec(**one, noise=1.0, seed=3)),
        Mixture(lm, [*TEMPLATES[1:], "[X] ([Y])"], MixtureSpec(**one, deep=True)),
        Mixture(lm, TEMPLATES, MixtureSpec(**one, weighting="data-dependent")),
        Mixture(lm, TEMPLATES, MixtureSpec(**one, combine="product")),
    ]
    train(made[2], CAPITALS, TrainingSpec(pairs=200, learning_rate=0.1))
    chooses = Mixture(lm, TEMPLATES, MixtureSpec(**one))
    chooses.candidates = Candidates("three", ("Peru", "Norway", "Italy"))
    return [*made, chooses]


@pytest.mark.parametrize("name", ["bert", "roberta", "bart", "llama"])
def test_each_answers_as_it_does_alone(name):
    mixtures = mixtures_of(name)
    together = AskedTogether([mixture.answering() for mixture in mixtures])
    # Interleaved, so that neighbours in a batch belong to different mixtures.
    tops = dict(zip(mixtures, (1, 5, 3, 2, 9, 3), strict=True))
    asked = [(mixture, x) for x in XS for mixture in mixtures]
    questions = [AskedX(mixture.answering(), x, tops[mixture]) for mixture, x in asked]
    for (mixture, x), found in zip(asked, together.ask(questions), strict=True):
        alone = mixture.ask(x, top=tops[mixture])
        assert [reply.y for reply in found] == [reply.y for reply in alone]
        for reply, expected in zip(found, alone, strict=True):
            assert reply.probability == pytest.approx(expected.probability, rel=1e-4)
            assert reply.by_prompt == pytest.approx(expected.by_prompt, rel=1e-4, abs=1e-9)


def test_longer_answers_are_searched_mixture_by_mixture():
    lm = frozen("llama")
    long, short = Mixture(lm, TEMPLATES[:2]), Mixture(lm, TEMPLATES[:2], MixtureSpec(answers="one-token"))
    asked = [(short, "Paris"), (long, "Paris"), (long, "Oslo")]
    together = AskedTogether([long.answering(), short.answering()])
    found = together.ask([AskedX(mixture.answering(), x) for mixture, x in asked])
    for (mixture, x), replies in zip(asked, found, strict=True):
        alone = mixture.ask(x)
        assert [reply.y for reply in replies] == [reply.y for reply in alone]
        assert [reply.probability for reply in replies] == pytest.approx([one.probability for one in alone], rel=1e-4)


def test_many_questions_are_read_within_bounds(monkeypatch):
    mixture = Mixture(frozen("bert"), TEMPLATES)
    together = AskedTogether([mixture.answering()])
    sizes = []
    read = together._reader.pair_log_probs

    def counted(tuned, xs, facts, prompts):
        sizes.append(len(facts))
        return read(tuned, xs, facts, prompts)

    monkeypatch.setattr(together._reader, "pair_log_probs", counted)
    monkeypatch.setattr("askwell.answers.one_token._NUMBERS_AT_ONCE", 7 * mixture.lm.vocabulary_size)
    found = together.ask([AskedX(mixture.answering(), x) for x in XS])
    assert sizes == [6, 6]
    assert [replies[0].y for replies in found] == [mixture.ask(x)[0].y for x in XS]


def test_equally_probable_answers_stand_in_the_order_of_a_stable_sort():
    generator = torch.Generator().manual_seed(1)
    for top in (1, 3, 10, 30):
        values = torch.randint(0, 4, (5, 30), generator=generator).float()
        by_sort = values.sort(descending=True, stable=True).indices[:, :top]
        assert torch.equal(best_first(values, top), by_sort)
