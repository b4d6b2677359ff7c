"""Asking for answers of any length: whole strings, each once, with the probabilities of enumeration."""

import math

import pytest
import reference
import torch
from agreement import GLUED_Y, Twin, exact, ids, moved, plain, usable, words
from builders import tiny
from enumeration import (
    ONE_OF_EACH,
    TEMPLATES,
    best_first,
    by_prompt,
    end_of,
    enumerated,
    every_answer,
    every_product,
    few_tokens,
    lengths_by_hand,
    rank_among,
    spellings,
    spelt_with,
    with_ends,
)

from askwell.answers.answer_search import AnswerSearch
from askwell.answers.search import SearchLimits
from askwell.data.facts import Fact, Relation
from askwell.errors import BadOption, UsageError
from askwell.evaluation.examine import evaluate_split
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import ONE_TOKEN, AnswerKind, MixtureSpec

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
    replies = mixture.ask("Paris", top=1000)
    assert len(replies) == len({reply.y for reply in replies})
    assert {reply.y: reply.probability for reply in replies} == pytest.approx(
        {y: math.exp(p) for y, p in enumerated(name, "Paris", COUNTS).items()}
    )


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_search_that_is_cut_gives_the_best_and_says_what_may_be_missing(name, monkeypatch):
    mixture, _ = askable(name)
    expected = enumerated(name, "Paris", COUNTS)
    counts = []
    for opened in (1, 4, 10, 25, 200):
        monkeypatch.setattr("askwell.answers.open._LEAST_OPENED_TO_ASK", opened)
        monkeypatch.setattr("askwell.answers.open._OPENED_TO_ASK", 0)
        replies = mixture.ask("Paris", top=30)
        best = list(expected.items())[: len(replies)]
        if replies.is_exact:
            assert (len(replies), replies.unseen) == (30, 0)
        else:
            assert all(math.exp(p) <= replies.unseen for y, p in expected.items() if y not in [r.y for r in replies])
            assert f"answers below {100 * replies.unseen:.2g} % may be missing" in repr(replies)
        # All that are certain, or the best that was found.
        assert len(replies) == 1 or [reply.y for reply in replies] == [y for y, _ in best]
        counts.append(len(replies))
    assert counts == sorted(counts)
    assert counts[0] < 30
    assert counts[-1] == 30


@pytest.mark.parametrize("name", ["bert", "gpt2", "bart"])
def test_special_tokens_are_never_part_of_an_answer(name):
    """Even where the LM finds nothing more probable."""
    model, tokenizer = tiny.TINY[name]()
    templates, spec = ["[X] is in [Y] ."], MixtureSpec(answers="any-length", longest_answer=2)
    xs, only = words(plain(name), ["Paris"])
    special = sorted({*tokenizer.all_special_ids})
    with torch.no_grad():
        if name == "gpt2":  # whose output embedding has no bias
            best = int(Mixture(plain(name), templates, spec).word_log_probs(xs, only, 0).argmax())
            model.get_output_embeddings().weight[special] = 3 * model.get_output_embeddings().weight[best]
        elif name == "bart":
            model.get_buffer("final_logits_bias")[:, special] += 20.0
        else:
            model.get_output_embeddings().bias[special] += 20.0
    mixture = Mixture(FrozenLM(model, tokenizer, name=name), templates, spec)
    assert int(mixture.word_log_probs(xs, only, 0).argmax()) in special
    lengths = tuple(lengths_by_hand([1, 1])) if name == "bert" else ()
    mixture.answer_kind = AnswerKind(any_length=True, longest=2, log_lengths=lengths)
    replies = mixture.ask("Paris", top=5)
    assert len(replies) == 5 or not replies.is_exact
    assert replies
    for reply in replies:
        assert not any(token in reply.y for token in tokenizer.all_special_tokens)
        assert reply.y == reply.y.strip() != ""


# ── the end of answers ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("combine", ["mixture", "product"])
@pytest.mark.parametrize("templates", [TEMPLATES[:1], TEMPLATES], ids=["one end", "two ends"])
@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_an_answer_is_over_at_a_token_that_ends_it_unless_a_train_y_holds_that_token(name, templates, combine):
    tokens = with_ends(name, templates, "Paris")
    ends = frozenset(tokens[4:])
    assert len(ends) == len(templates)
    mixture, twin = few_tokens(name, templates, tokens, combine=combine)
    through = spellings(name, tokens=tokens)
    held = next(y for y, spelling in through.items() if len(spelling) == 2 and tokens[4] in spelling[1:])
    for train, without in (["Rome"], ends), (["Rome", held], ends - {tokens[4]}):
        relation = Relation.of(
            "r", [Fact("Cuba", y) for y in train], [], [Fact("Paris", "Cassatt"), Fact("Mary Cassatt", held)]
        )
        spelt = spellings(name, tokens=tokens, without=without)
        each = {
            x: every_answer(twin, x, spelt=spelt)
            if combine == "mixture"
            else every_product(twin, mixture.weights, x, spelt=spelt)
            for x in ("Paris", "Mary Cassatt")
        }
        assert any(set(through[y]) & ends for y in each["Paris"]) == (held in train)
        found = {outcome.x: outcome for outcome in evaluate_split(mixture, relation).outcomes}
        for x, outcome in found.items():
            assert outcome.answers == tuple(each[x])[:10]
        # A gold is spelled as it is, and ranked among answers that are not.
        gold = found["Mary Cassatt"]
        others = {y: p for y, p in each["Mary Cassatt"].items() if y != held}
        own = every_answer(twin, "Mary Cassatt", spelt={held: through[held]})
        if combine == "product":
            own = every_product(twin, mixture.weights, "Mary Cassatt", spelt={held: through[held]})
        assert gold.log_probability == pytest.approx(own[held], abs=1e-9)
        assert gold.rank == rank_among(best_first(others | own), held)
        mixture.answer_kind = kind = mixture.encode_relation(relation).kind
        assert [reply.y for reply in mixture.ask("Paris", top=30)] == list(each["Paris"])[:30]
        if len(templates) > 1 and combine == "mixture":
            check_each_prompt(mixture, twin, tokens, kind.through)
        mixture.answer_kind = None


def check_each_prompt(mixture: Mixture, twin: Twin, tokens: tuple[int, ...], through: tuple[int, ...]) -> None:
    """A prompt by itself ends answers with its own end alone."""
    (alone,) = mixture.answering().ask_each_prompt(["Paris"])
    for t, (reply, template) in enumerate(zip(alone, twin.templates, strict=True)):
        own = frozenset({end_of(twin.name, template, "Paris") or -1}) - {*through}
        spelt = spellings(twin.name, tokens=tokens, without=own)
        with torch.no_grad():
            each = {y: float(by_prompt(twin, "Paris", spelling)[t]) for y, spelling in spelt.items()}
        assert (reply.y, reply.probability) == (
            best := next(iter(best_first(each))),
            pytest.approx(math.exp(each[best])),
        )


# ── without facts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_asked_for_where_there_are_no_facts():
    templates = ["[X] is in [Y] ."]
    assert Mixture(plain("gpt2"), templates).answering().kind == AnswerKind(any_length=True, longest=10)
    assert Mixture(plain("bart"), templates).answering().kind == AnswerKind(any_length=True, longest=10)
    assert Mixture(plain("bert"), templates).answering().kind == ONE_TOKEN
    for name in ("gpt2", "bert"):
        assert Mixture(plain(name), templates, MixtureSpec(answers="one-token")).answering().kind == ONE_TOKEN
    shorter = MixtureSpec(answers="any-length", longest_answer=4)
    assert Mixture(plain("gpt2"), templates, shorter).answering().kind.longest == 4
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
    with pytest.raises(UsageError, match="cannot be asked: x is longer"):
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
    search = AnswerSearch(mixture, SearchLimits(answers=9, tokens=1, at_once=1), AnswerKind(any_length=True))
    for place, gold in enumerate(order[:3]):
        (found,) = search.at_least(xs, questions, [expected[gold] - 1e-9], lambda _, text, gold=gold: text != gold)
        assert found.is_exact
        assert [answer.text for answer in found.answers] == order[: place + 1]
        for answer in found.answers:
            assert answer.log_probability == pytest.approx(expected[answer.text], abs=1e-9)
