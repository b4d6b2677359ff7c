"""Asking for answers of any length: whole strings, each once, with the probabilities of enumeration."""

import math

import pytest
import reference
import torch
from agreement import GLUED_Y, Twin, exact, ids, moved, plain, usable, words
from builders import tiny
from enumeration import ONE_OF_EACH, by_prompt, enumerated, few_tokens, lengths_by_hand, spellings, spelt_with

from askwell.errors import BadOption, UserMistake
from askwell.lms.frozen import FrozenLM
from askwell.mixture import distributions
from askwell.mixture.answer_search import AnswerSearch
from askwell.mixture.answers import ONE_TOKEN, AnswerKind
from askwell.mixture.encode import default_kind
from askwell.mixture.mixture import Mixture
from askwell.mixture.search import SearchLimits
from askwell.specs.mixture_spec import MixtureSpec

COUNTS = (2, 1, 1)


def askable(name: str) -> tuple[Mixture, Twin]:
    """A mixture of few tokens that was tuned for answers of up to three."""
    mixture, twin = few_tokens(name)
    lengths = tuple(lengths_by_hand(COUNTS)) if name == "bert" else ()
    mixture.answer_kind = AnswerKind(any_length=True, longest=3, log_lengths=lengths)
    return mixture, twin


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_answers_are_whole_strings_with_the_probabilities_of_enumeration(name):
    mixture, twin = askable(name)
    expected = enumerated(name, "Paris", COUNTS)
    replies = mixture.ask("Paris", top=6)
    assert [reply.y for reply in replies] == list(expected)[:6]
    assert [reply.probability for reply in replies] == pytest.approx([math.exp(p) for p in expected.values()][:6])
    lengths = lengths_by_hand(COUNTS) if name == "bert" else ()
    for reply in replies[:3]:
        with torch.no_grad():
            each = by_prompt(twin, "Paris", spellings(name)[reply.y], lengths).exp().tolist()
        assert reply.by_prompt == pytest.approx(each)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_all_answers_are_found_once_each(name):
    mixture, _ = askable(name)
    replies = mixture.ask("Paris", top=1000, beams=200)
    assert len(replies) == len({reply.y for reply in replies})
    assert {reply.y: reply.probability for reply in replies} == pytest.approx(
        {y: math.exp(p) for y, p in enumerated(name, "Paris", COUNTS).items()}
    )


def test_more_beams_look_into_more():
    mixture, _ = askable("gpt2")
    expected = enumerated("gpt2", "Paris", COUNTS)
    found = {beams: mixture.ask("Paris", top=100, beams=beams) for beams in (1, 8, 100)}
    counts = [len(replies) for replies in found.values()]
    # Each beam opens two prefixes after the question itself, each of which is an answer if it ends there; for the best
    # answer as many more are opened as it may have tokens.
    assert all(count <= 2 * beams + 3 for beams, count in zip(found, counts, strict=True))
    assert counts[0] < counts[1] < counts[2] == len(expected)
    for replies in found.values():
        for reply in replies:
            assert reply.probability == pytest.approx(math.exp(expected[reply.y]))
    assert found[1][0].y == next(iter(expected))


@pytest.mark.parametrize("name", ["bert", "gpt2", "bart"])
def test_special_tokens_are_never_part_of_an_answer(name):
    """Even where the LM finds nothing more probable."""
    model, tokenizer = tiny.TINY[name]()
    templates, spec = ["[X] is in [Y] ."], MixtureSpec(answers="any-length", longest_answer=2)
    xs, only = words(plain(name), ["Paris"])
    special = sorted({*tokenizer.all_special_ids})
    with torch.no_grad():
        if name == "gpt2":  # whose output embedding has no bias
            best = int(distributions.prompt_log_probs(Mixture(plain(name), templates, spec), xs, only, 0).argmax())
            model.get_output_embeddings().weight[special] = 3 * model.get_output_embeddings().weight[best]
        elif name == "bart":
            model.get_buffer("final_logits_bias")[:, special] += 20.0
        else:
            model.get_output_embeddings().bias[special] += 20.0
    mixture = Mixture(FrozenLM(model, tokenizer, name=name), templates, spec)
    assert int(distributions.prompt_log_probs(mixture, xs, only, 0).argmax()) in special
    lengths = tuple(lengths_by_hand([1, 1])) if name == "bert" else ()
    mixture.answer_kind = AnswerKind(any_length=True, longest=2, log_lengths=lengths)
    replies = mixture.ask("Paris", top=5)
    assert len(replies) == 5
    for reply in replies:
        assert not any(token in reply.y for token in tokenizer.all_special_tokens)
        assert reply.y == reply.y.strip() != ""


# ── without facts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_asked_for_where_there_are_no_facts():
    templates = ["[X] is in [Y] ."]
    assert default_kind(Mixture(plain("gpt2"), templates)) == AnswerKind(any_length=True, longest=10)
    assert default_kind(Mixture(plain("bart"), templates)) == AnswerKind(any_length=True, longest=10)
    assert default_kind(Mixture(plain("bert"), templates)) == ONE_TOKEN
    for name in ("gpt2", "bert"):
        assert default_kind(Mixture(plain(name), templates, MixtureSpec(answers="one-token"))) == ONE_TOKEN
    shorter = MixtureSpec(answers="any-length", longest_answer=4)
    assert default_kind(Mixture(plain("gpt2"), templates, shorter)).longest == 4
    with pytest.raises(BadOption, match="`answers` any-length: a masked LM learns from train facts how long"):
        Mixture(plain("bert"), templates, shorter).ask("Paris")


def test_a_causal_lm_answers_in_whole_strings_and_a_masked_one_in_tokens():
    masked = Mixture(plain("bert"), ["[X] is in [Y] ."])
    vocabulary = {token.removeprefix("##") for token in plain("bert").tokenizer.get_vocab()}
    assert {reply.y for reply in masked.ask("Paris")} <= vocabulary
    causal, _ = few_tokens("gpt2")
    assert causal.answer_kind is None
    assert [reply.y for reply in causal.ask("Paris", top=8)] == list(enumerated("gpt2", "Paris", COUNTS))[:8]


def test_an_x_must_leave_room_for_the_answer():
    mixture = Mixture(plain("gpt2"), ["[X] is in [Y] ."])
    # A line break and two words stand beside x, and ten tokens of y.
    assert mixture.ask(" ".join(["Rome"] * (tiny.POSITIONS - 13)), top=1)
    with pytest.raises(UserMistake, match="cannot be asked: x is longer"):
        mixture.ask(" ".join(["Rome"] * (tiny.POSITIONS - 12)))


# ── two forms of y ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_at_least_as_probable_counts_all_forms_together():
    """The search of one form does not stop at an answer that this form alone finds probable."""
    lm, templates = exact("gpt2"), [usable("gpt2")[0], GLUED_Y]
    mixture = moved(lm, templates, seed=18)
    with torch.no_grad():
        mixture.weight_logits.zero_()
    spelt_with(mixture, ids("gpt2", " ".join(f"{word} Ġ{word}" for word in tiny.BOTH)))
    twin = Twin.of("gpt2", templates, mixture)
    expected = {}
    for word in tiny.BOTH:
        forms = [ids("gpt2", f"Ġ{word}"), ids("gpt2", word)]
        with torch.no_grad():
            each = [by_prompt(twin, "Paris", tokens)[t] for t, tokens in enumerate(forms)]
            expected[word] = float(reference.log_mixture(twin.log_weights(None), each))
    order = sorted(expected, key=lambda word: -expected[word])
    xs, questions = words(lm, ["Paris"])
    search = AnswerSearch(mixture, SearchLimits(answers=1, tokens=1, at_once=1), None)
    for place, gold in enumerate(order[:3]):
        (found,) = search.at_least(xs, questions, [expected[gold] - 1e-9], lambda _, text, gold=gold: text != gold)
        assert found.is_exact
        assert [answer.text for answer in found.answers] == order[: place + 1]
        for answer in found.answers:
            assert answer.log_probability == pytest.approx(expected[answer.text], abs=1e-9)
