"""What sentences have in common is read once: the numbers and gradients of whole sentences, from fewer tokens."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest
import torch
from agreement import CAUSAL, FURTHER_CAUSAL, X_FIRST, exact, exact_eager_attention, gradients, moved, plain, words
from builders import tiny_walks
from builders.specs import paper_spec

from askwell.answers.one_token import OneTokenAnswers
from askwell.lms.batches import Batch, Words
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.prompts import shared_prefixes

XS = ["Paris", "Reykjavik", "Mary Cassatt", "Cuba"]
YS = ["Rome", "Mary Cassatt", "Reykjavik", "Lima"]
TEMPLATES = [*X_FIRST, "[X], a city ([Y]).", "[X] lies in [Y] ."]
"""Words before x, x first, nothing but x, x glued to a bracket."""


@contextmanager
def read_by(lm: FrozenLM, *, whole: bool = False, shares: bool = True) -> Generator[None]:
    """The LM without its walk, or without sharing."""
    walk = lm.walk
    assert walk is not None
    lm.walk, lm.may_share_prefixes = (None if whole else walk), shares
    try:
        yield
    finally:
        lm.walk, lm.may_share_prefixes = walk, True


def read_all(mixture: Mixture, xs: Words | None = None) -> list[torch.Tensor]:
    """Probabilities of one-token and of longer ys under all prompts, the gradients of a weighted sum of them, and the
    distributions at y."""
    lm = mixture.lm
    xs = xs or words(lm, XS)[0]
    ys, facts = words(lm, YS)
    mixture.zero_grad()
    first_tokens = ys.ids[:, :, 0]
    parts = [
        mixture.pairs.gold_log_probs(mixture.tuned, xs, first_tokens, facts),
        mixture.long_answers.log_probs(mixture.tuned, xs, ys, facts),
    ]
    weights = torch.linspace(1, 2, parts[0].numel(), dtype=lm.dtype).view_as(parts[0])
    torch.stack([(weights * part).sum() for part in parts]).sum().backward()
    return [
        *(part.detach() for part in parts),
        *gradients(mixture).values(),
        OneTokenAnswers(mixture).log_probs(xs, facts),
    ]


def assert_near(ours: list[torch.Tensor], theirs: list[torch.Tensor], dtype: torch.dtype) -> None:
    tolerance = {torch.float64: 1e-9, torch.float32: 5e-5}[dtype]
    for mine, other in zip(ours, theirs, strict=True):
        scale = max(1.0, float(other.abs()[other.isfinite()].max()))
        torch.testing.assert_close(mine / scale, other / scale, atol=tolerance, rtol=0)


@pytest.mark.parametrize("whole", [False, True], ids=["walk", "whole model"])
@pytest.mark.parametrize("deep", [False, True], ids=["layer 0", "deep"])
@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("name", CAUSAL)
def test_shared_and_unshared_sentences_give_the_same(name: str, precision: str, deep: bool, whole: bool) -> None:
    lm = exact(name) if precision == "float64" else plain(name)
    mixture = moved(lm, TEMPLATES, paper_spec(deep=deep))
    with read_by(lm, whole=whole, shares=False):
        assert not lm.shares_prefixes
        unshared = read_all(mixture)
    with read_by(lm, whole=whole):
        assert lm.shares_prefixes
        assert_near(read_all(mixture), unshared, lm.dtype)
        xs, _ = words(lm, XS)
        with mixture.pairs.keeping(xs):
            assert_near(read_all(mixture, xs), unshared, lm.dtype)


@pytest.mark.parametrize("whole", [False, True], ids=["walk", "whole model"])
@pytest.mark.parametrize("name", FURTHER_CAUSAL)
def test_further_lms_share_too(name: str, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.models.gemma2.modeling_gemma2.eager_attention_forward", exact_eager_attention)
    lm = exact(name)
    mixture = moved(lm, TEMPLATES[:3], paper_spec(deep=True))
    with read_by(lm, whole=whole, shares=False):
        unshared = read_all(mixture)
    with read_by(lm, whole=whole):
        xs, _ = words(lm, XS)
        with mixture.pairs.keeping(xs):
            assert_near(read_all(mixture, xs), unshared, lm.dtype)


@pytest.mark.parametrize("whole", [False, True], ids=["walk", "whole model"])
def test_sentences_longer_than_a_window_share_nothing(whole: bool) -> None:
    lm = FrozenLM(*tiny_walks.make_mistral(window=9), dtype=torch.float64)
    mixture = moved(lm, ["The capital of [X] is [Y] .", "[X] [Y]"], paper_spec())
    xs, _ = words(lm, XS)
    lengths = mixture.pairs.longest_question(xs).tolist()
    assert min(lengths) <= 9 < max(lengths)
    with read_by(lm, whole=True, shares=False):
        unshared = read_all(mixture)
    with read_by(lm, whole=whole):
        with mixture.pairs.keeping(xs):
            found = read_all(mixture, xs)
        for mine, other in zip(found, unshared, strict=True):
            torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_too_much_to_keep_for_one_backward_pass_is_recomputed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = exact(name)
    mixture = moved(lm, TEMPLATES, paper_spec(deep=True))
    kept_whole = read_all(mixture)
    monkeypatch.setattr("askwell.prompts.pairs._TRAINING_BYTES", 1)
    assert mixture.pairs.must_recompute(1)
    assert_near(read_all(mixture), kept_whole, lm.dtype)


class Counted:
    """How many tokens an LM's walk reads, by what is asked of it."""

    def __init__(self, lm: FrozenLM, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tokens = 0
        original = lm._walked

        def counting(walk: object, batch: Batch, *arguments: object, **options: object) -> object:
            self.tokens += sum(int(stream.lengths.sum()) for stream in batch.streams.values())
            return original(walk, batch, *arguments, **options)  # ty: ignore[invalid-argument-type]

        monkeypatch.setattr(lm, "_walked", counting)

    def during(self, mixture: Mixture, xs: Words, facts: torch.Tensor) -> int:
        """The tokens that one reading of one-token ys takes."""
        before = self.tokens
        mixture.pairs.gold_log_probs(mixture.tuned, xs, xs.ids[:, :, 0], facts)
        return self.tokens - before


def test_x_is_read_once_for_all_prompts_and_in_training_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = plain("gpt2")
    mixture = Mixture(lm, ["[X] lies in [Y] .", "[X] was born in [Y] ."], paper_spec(begin="line-break"))
    xs, facts = words(lm, XS)
    of_xs = int(xs.lengths[1].sum()) + len(XS)  # after a line break, which counts, x has no space before it
    of_words = len(XS) * (2 + 3)
    counted = Counted(lm, monkeypatch)
    assert counted.during(mixture, xs, facts) == of_xs + of_words
    with mixture.pairs.keeping(xs):
        assert counted.during(mixture, xs, facts) == of_words
        assert counted.during(mixture, xs, facts[:1]) == 2 + 3
    with read_by(lm, shares=False):
        assert counted.during(mixture, xs, facts) == 2 * of_xs + of_words


def test_words_before_x_are_read_once_for_all_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = plain("gpt2")
    mixture = Mixture(lm, ["The capital of [X] is [Y] ."], paper_spec(begin="space"))
    xs, facts = words(lm, XS)
    counted = Counted(lm, monkeypatch)
    assert counted.during(mixture, xs, facts) == 3 + int(xs.lengths[0].sum()) + len(XS)


def test_while_nothing_changes_words_before_x_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = plain("gpt2")
    mixture = Mixture(lm, ["The capital of [X] is [Y] .", "of [X] is [Y] ."], paper_spec(begin="space"))
    xs, facts = words(lm, XS)
    after = 2 * int(xs.lengths[0].sum()) + 2 * len(XS)  # x and one word, under each prompt
    counted = Counted(lm, monkeypatch)
    with torch.no_grad(), mixture.pairs.keeping(xs, unchanged=True):
        assert counted.during(mixture, xs, facts) == 3 + 1 + after
        assert counted.during(mixture, xs, facts[:3]) == 2 * int(xs.lengths[0][:3].sum()) + 2 * 3
        with torch.enable_grad():  # gradients need the words before x themselves
            assert counted.during(mixture, xs, facts) == 3 + 1 + after
    for change in (0.0, 0.1):  # what was kept ends with its block
        with torch.no_grad():
            mixture.vectors.add_(change * torch.randn(mixture.vectors.shape, generator=torch.manual_seed(0)))
            expected = mixture.pairs.gold_log_probs(mixture.tuned, xs, xs.ids[:, :, 0], facts)
            with mixture.pairs.keeping(xs, unchanged=True):
                found = mixture.pairs.gold_log_probs(mixture.tuned, xs, xs.ids[:, :, 0], facts)
        torch.testing.assert_close(found, expected)


def test_no_more_is_kept_than_there_is_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = plain("llama")
    mixture = Mixture(lm, ["[X] lies in [Y] ."], paper_spec(begin="eos"))
    xs, facts = words(lm, XS)
    # Keys and values of every layer: the beginning, llama's own BOS and x.
    config = lm.model.config
    width = config.num_key_value_heads * (config.hidden_size // config.num_attention_heads)
    size = (int(xs.lengths[1].sum()) + 2 * len(XS)) * config.num_hidden_layers * 2 * width * 4
    counted = Counted(lm, monkeypatch)
    for limit, is_kept in ((size, True), (size - 1, False)):
        monkeypatch.setattr(shared_prefixes, "memory_limit", lambda _, limit=limit: limit)
        with mixture.pairs.keeping(xs):
            kept = counted.during(mixture, xs, facts) == 2 * len(XS)
        assert kept is is_kept


def test_the_limit_follows_the_machine() -> None:
    limit = shared_prefixes.memory_limit(torch.device("cpu"))
    assert 2**20 < limit < 2**50


def test_other_families_share_nothing() -> None:
    for name in ("bert", "bart"):
        lm = plain(name)
        assert not lm.shares_prefixes
