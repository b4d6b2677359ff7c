"""Mixtures ask in batches of bounded size, with the same numbers as in one batch."""

import agreement
import pytest
import torch
from agreement import ALL, GLUED_X, GLUED_Y, exact, moved, usable, words
from builders.specs import paper_spec
from builders.worlds import TEMPLATES, frozen

from askwell.answers.one_token import OneTokenAnswers
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.prompts import pairs as module

XS = ["Paris", "Reykjavik", "Mary Cassatt", "Cuba"]


def gold_and_gradients(mixture: Mixture) -> list[torch.Tensor]:
    xs, facts = words(mixture.lm, XS)
    mixture.zero_grad()
    gold = mixture.pairs.gold_log_probs(mixture.tuned, xs, torch.full((2, len(XS)), 30), facts)
    of_x = mixture.log_p_x(xs, facts)
    (gold + mixture.weighting(of_x, len(XS))).logsumexp(1).sum().backward()
    return [gold, of_x, *agreement.gradients(mixture).values()]


@pytest.mark.parametrize("name", ["bert", "bart", "llama", "modernbert"])
def test_a_fact_that_is_too_large_to_keep_has_the_same_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mixture = moved(exact(name), usable(name), paper_spec(deep=True, weighting="data-dependent"))
    expected = gold_and_gradients(mixture)
    monkeypatch.setattr(module, "_TRAINING_BYTES", 1)
    monkeypatch.setattr(module, "_TOKENS_AT_ONCE", 24)
    passes: list[int] = []
    asked = FrozenLM.log_probs_of
    monkeypatch.setattr(
        FrozenLM, "log_probs_of", lambda self, *rest, **more: (passes.append(1), asked(self, *rest, **more))[1]
    )
    found = gold_and_gradients(mixture)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-11, rtol=0)
    batches = len(passes) // 2
    assert len(passes) == 2 * batches > 4, "each batch is asked again when its gradients are taken"
    assert mixture.pairs.facts_at_once(mixture.pairs.bytes_of_fact(words(mixture.lm, XS)[0])) == 1


@pytest.mark.parametrize("limit", ["_TOKENS_AT_ONCE", "_LOGITS_AT_ONCE"])
def test_batches_are_bounded_by_tokens_and_by_logits(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mixture = moved(exact("bert"), usable("bert"))
    xs, facts = words(mixture.lm, XS)
    expected = OneTokenAnswers(mixture).log_probs(xs, facts)
    sizes: list[int] = []
    asked = FrozenLM.distributions
    monkeypatch.setattr(
        FrozenLM,
        "distributions",
        lambda self, batch, *rest: (sizes.append(len(batch.read_pairs)), asked(self, batch, *rest))[1],
    )
    monkeypatch.setattr(module, limit, 30 if limit == "_TOKENS_AT_ONCE" else 3 * mixture.lm.vocabulary_size)
    torch.testing.assert_close(OneTokenAnswers(mixture).log_probs(xs, facts), expected, atol=1e-12, rtol=0)
    assert sum(sizes) == len(XS) * len(mixture.prompts)
    assert max(sizes) <= (5 if limit == "_TOKENS_AT_ONCE" else 3)


@pytest.mark.parametrize("kind", ["static", "dependent", "product"])
@pytest.mark.parametrize("templates", [[GLUED_X, "[X] [Y]"], [GLUED_Y, GLUED_X]])
@pytest.mark.parametrize("name", ALL)
def test_some_answers_are_columns_of_all(name: str, templates: list[str], kind: str) -> None:
    spec = paper_spec(
        weighting="data-dependent" if kind == "dependent" else "static",
        combine="product" if kind == "product" else "mixture",
    )
    mixture = moved(exact(name), templates, spec)
    xs, facts = words(mixture.lm, XS)
    whole = OneTokenAnswers(mixture).log_probs(xs, facts)
    some = torch.tensor([3, 40, 7, mixture.token_words.count - 1])
    allowed = OneTokenAnswers(mixture)
    allowed._allowed, allowed.count = some, len(some)
    assert torch.equal(allowed.log_probs(xs, facts), whole[:, some])
    # One prompt after the other, as logarithms.
    one_by_one = [mixture.word_log_probs(xs, facts, number) for number in range(len(mixture.prompts))]
    torch.testing.assert_close(
        whole,
        OneTokenAnswers(mixture).combine_one_by_one(mixture.log_weights_for(xs, facts), one_by_one),
        atol=1e-11,
        rtol=0,
    )


def test_probabilities_too_small_for_a_float_keep_their_logarithms() -> None:
    lm = frozen("bert")
    with torch.no_grad():
        lm.model.cls.predictions.decoder.bias[50:60] = -300.0
    mixture = Mixture(lm, TEMPLATES, paper_spec())
    xs, facts = words(lm, XS)
    log_probs = OneTokenAnswers(mixture).log_probs(xs, facts)
    assert log_probs.isfinite().all()
    assert bool((log_probs[:, 50:60] < -200).all())
    each = torch.stack([mixture.word_log_probs(xs, facts, number) for number in range(3)])
    expected = (each.double() + mixture.weights.double().log()[:, None, None]).logsumexp(0).float()
    torch.testing.assert_close(log_probs, expected, atol=5e-5, rtol=0)
