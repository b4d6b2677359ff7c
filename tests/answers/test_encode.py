"""What counts as an answer, and which facts are left out, when answers may have any length."""

import math
import re
from typing import Any

import pytest
import torch
from agreement import GLUED_Y, exact, plain
from builders import tiny
from builders.specs import paper_spec
from builders.worlds import CAPITALS, FACTS, TEMPLATES, frozen

from askwell.answers.encode import encode_facts
from askwell.answers.kinds import kind_of_facts
from askwell.answers.likelihood import gold_log_probs, likelihood
from askwell.answers.reply import NOT_SPELT, TOO_MANY_TOKENS
from askwell.data.facts import Fact, Relation
from askwell.errors import BadOption, NothingLeft
from askwell.evaluation.examine import evaluate_split
from askwell.lms.batches import TokenisedTexts
from askwell.mixture.mixture import Mixture
from askwell.prompts.prompt_set import NO_TOKENS, TOO_LONG
from askwell.specs.mixture_spec import ONE_TOKEN, AnswerKind, MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training.loop import train

ANY_LENGTH = MixtureSpec(answers="any-length", longest_answer=3)


def answer_kind(mixture: Mixture, train: list[str], others: list[str] | None = None, *, whole: bool = False):
    ys, rest = (TokenisedTexts(texts, mixture.lm.wording) for texts in (train, others or []))
    return kind_of_facts(mixture, ys, rest, whole=whole)


@pytest.mark.parametrize("name", ["bert", "gpt2", "bart"])
def test_facts_that_are_left_out_and_why(name):
    mixture = Mixture(plain(name), ["[X] is in [Y] ."], ANY_LENGTH)
    facts = [
        Fact("Paris", "Rome"),
        Fact("Paris", "Massachusetts"),  # three tokens
        Fact("Paris", "Mary Cassatt Rome"),  # four
        Fact("Paris", "東京"),
        Fact("\u200b" if name == "bert" else " ", "Rome"),
        Fact(" ".join(["Paris"] * 200), "Rome"),
    ]
    encoded, left_out = mixture.encode(facts)
    if name == "bert":  # whose tokenizer has no bytes to spell any character with
        expected = [TOO_MANY_TOKENS, NOT_SPELT, NO_TOKENS, TOO_LONG]
    else:
        expected = [TOO_MANY_TOKENS, TOO_MANY_TOKENS, TOO_LONG]
        assert len(plain(name).tokenizer("東京", add_special_tokens=False)["input_ids"]) > 3
    asked = [fact for fact in facts if fact not in {one.fact for one in left_out}]
    assert list(encoded.facts) == asked
    assert [one.reason for one in left_out if one.fact.x.strip(" ")] == expected
    spelt = [encoded.ys.ids[0, n, : int(encoded.ys.lengths[0, n])].tolist() for n in range(2)]
    tokenizer: Any = plain(name).tokenizer
    assert [tokenizer.decode(tokens).strip() for tokens in spelt] == ["Rome", "Massachusetts"]
    assert encoded.answers[1] == -1, "Massachusetts is no one-token answer"


@pytest.mark.parametrize(("name", "beside"), [("bert", 2 + 2 + 1), ("gpt2", 1 + 2), ("bart", 2 + 2)])
def test_the_longest_x_that_leaves_room_for_the_longest_answer(name, beside):
    """What is read beside x and y: special tokens or a line break, and the prompt; a written answer is read to its
    last token, since its end is read off there. BART's decoder reads up to y, and starts with one token more."""
    mixture = Mixture(plain(name), ["[X] is in [Y] ."], ANY_LENGTH)
    longest = {"bert": 2}.get(name, 3)  # tokens of the longest train y, or of the longest that is allowed
    most = tiny.POSITIONS - beside - longest
    y = {2: "Iceland", 3: "Massachusetts"}[longest]
    facts = [Fact(" ".join(["Paris"] * length), y) for length in (most, most + 1)]
    encoded, left_out = encode_facts(mixture, facts, answer_kind(mixture, ["Rome", y]))
    assert encoded.facts == (facts[0],)
    assert [one.reason for one in left_out] == [TOO_LONG]
    assert likelihood(mixture, encoded, torch.arange(1)).total.isfinite().all()
    mixture.answer_kind = encoded.kind
    assert mixture.ask(facts[0].x, top=2), "all answers of that length fit"


# ── what counts as an answer ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["bert", "gpt2", "bart"])
def test_auto_takes_one_token_unless_a_fact_needs_more(name):
    mixture = Mixture(plain(name), ["[X] is in [Y] ."])
    assert mixture.encode_relation(CAPITALS).kind == ONE_TOKEN
    for split in ("train", "dev", "test"):
        facts = {"train": FACTS[:2], "dev": FACTS[:1], "test": FACTS[:1]}
        facts[split] = [*facts[split], Fact("Paris", "Iceland")]
        kind = mixture.encode_relation(Relation.of("r", **facts)).kind
        assert (kind.name, kind.longest) == ("any-length", 10)
    one_token = Mixture(plain(name), ["[X] is in [Y] ."], paper_spec())
    encoded = one_token.encode_relation(Relation.of("r", [*FACTS, Fact("Paris", "Iceland")], FACTS, FACTS))
    assert encoded.kind == ONE_TOKEN
    assert [one.fact.y for one in encoded.left_out("train")] == ["Iceland"]


def test_what_a_mixture_was_tuned_for_stays():
    mixture = Mixture(plain("gpt2"), ["[X] is in [Y] ."])
    mixture.answer_kind = AnswerKind(any_length=True, longest=2)
    assert mixture.encode_relation(CAPITALS).kind == mixture.answer_kind


def test_the_lengths_of_a_masked_lms_answers_by_hand():
    mixture = Mixture(plain("bert"), ["[X] is in [Y] ."], ANY_LENGTH)
    # Three ys of one token, one of two, two of three; four tokens are too many, and [UNK] is no answer.
    ys = ["Rome", "Rome", "Peru", "Iceland", "Massachusetts", "Massachusetts", "Mary Cassatt Rome", "東"]
    kind = answer_kind(mixture, ys, ["Mary Cassatt Rome", "Rome"])
    assert kind.any_length
    assert kind.is_long
    assert kind.log_lengths == pytest.approx([math.log(count / 7.5) for count in (3.5, 1.5, 2.5)])
    # No train y has one token: a length without ys still has a half.
    assert answer_kind(mixture, ["Iceland"]).log_lengths == pytest.approx([math.log(0.5 / 2), math.log(1.5 / 2)])
    assert answer_kind(Mixture(plain("gpt2"), TEMPLATES, ANY_LENGTH), ys).log_lengths == ()


def test_candidates_take_whole_answers():
    mixture = Mixture(plain("bert"), TEMPLATES)
    assert answer_kind(mixture, ["Rome"], whole=True).any_length
    with pytest.raises(BadOption, match=r"`answers` one-token: .* takes whole answers"):
        answer_kind(Mixture(plain("bert"), TEMPLATES, paper_spec()), ["Rome"], whole=True)


def test_a_masked_lm_with_train_ys_of_one_token_gives_the_one_token_numbers_to_the_bit():
    specs = {answers: MixtureSpec(answers=answers, deep=True) for answers in ("one-token", "any-length", "auto")}
    mixtures = {answers: Mixture(frozen("bert"), TEMPLATES, spec) for answers, spec in specs.items()}
    spec = TrainingSpec(recipe="paper", epochs=2, learning_rate=0.01, batch_facts=4, threads=1)
    histories = {answers: train(mixture, CAPITALS, spec).history for answers, mixture in mixtures.items()}
    kinds = {answers: mixture.answer_kind for answers, mixture in mixtures.items()}
    assert kinds["auto"] == kinds["one-token"] == ONE_TOKEN
    assert kinds["any-length"] == AnswerKind(any_length=True, longest=10, log_lengths=(0.0,))
    expected = mixtures["one-token"].state_dict()
    for answers, mixture in mixtures.items():
        assert all(torch.equal(tensor, expected[name]) for name, tensor in mixture.state_dict().items())
        assert [line.train_loss for line in histories[answers]] == [line.train_loss for line in histories["one-token"]]
        encoded = mixture.encode_relation(CAPITALS).split("train")
        listed = mixtures["one-token"].encode_relation(CAPITALS).split("train")
        every = torch.arange(len(encoded))
        assert torch.equal(
            likelihood(mixture, encoded, every).total,
            likelihood(mixtures["one-token"], listed, every).total,
        )
    outcomes = {answers: evaluate_split(mixture, CAPITALS).outcomes for answers, mixture in mixtures.items()}
    assert outcomes["auto"] == outcomes["one-token"]


def test_answers_that_are_all_too_long_say_what_to_do():
    spec = MixtureSpec(answers="any-length", longest_answer=2)
    mixture = Mixture(exact("roberta"), [TEMPLATES[0]], spec)
    long_ones = Relation.of("r", [Fact("Paris", "Italy")], [], [Fact("Paris", "Reykjavik")])
    facts = mixture.encode_relation(long_ones)
    advice = "1 × y has more tokens than the longest answer may have; `askwell train --longest-answer N` allows for"
    with pytest.raises(NothingLeft, match=re.escape("no test facts of r left: " + advice)):
        facts.need("test")
    with pytest.raises(NothingLeft, match=re.escape(advice)):
        evaluate_split(mixture, long_ones, encoded=facts)


def test_two_forms_of_y_each_have_their_own_number_of_tokens():
    """After a space Italy is one token and Reykjavik three; after a bracket both are five."""
    spec = MixtureSpec(answers="any-length", longest_answer=5)
    mixture = Mixture(exact("roberta"), [TEMPLATES[0], GLUED_Y], spec)
    kind = answer_kind(mixture, ["Italy", "Reykjavik", "Massachusetts"])  # the last has too many after a bracket
    assert kind.log_lengths == pytest.approx([math.log(count / 3.5) for count in (1.5, 0.5, 1.5)])
    facts = [Fact("Paris", "Italy"), Fact("Paris", "Massachusetts")]
    encoded, left_out = encode_facts(mixture, facts, kind)
    assert encoded.facts == (facts[0],)
    assert [one.reason for one in left_out] == [TOO_MANY_TOKENS]
    with torch.no_grad():
        spaced, glued = gold_log_probs(mixture, encoded, torch.arange(1))[0].tolist()
    assert spaced > -math.inf
    assert glued == -math.inf, "no train y has five tokens after a space"
