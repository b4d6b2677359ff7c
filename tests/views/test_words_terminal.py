"""Soft prompts in a terminal: short, and led by what each vector does."""

import io
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from looked_at import ANY_TEXT, lightness, prompt, word
from rich.console import Console

from askwell.views.to_text import print_blocks
from askwell.views.words import BlankPlace, PromptToken, PromptWords, nearest_words
from askwell.views.words_figure import BLUE, RED, faded, words_listed


def printed(prompts: list[PromptWords], width: int = 100) -> str:
    written = io.StringIO()
    print_blocks(words_listed(prompts), Console(file=written, width=width))
    return written.getvalue()


def vector(original: str, change: float | None, *, moved: float = 1.0, is_near: bool = False) -> PromptToken:
    return PromptToken(word(0, original), word(1, "Rome"), 1.25, (), is_near, moved, change=change)


@pytest.mark.parametrize("name", ["bert", "gpt2", "deep_bart"])
def test_the_heaviest_prompts_are_named_with_their_weights(request, name):
    prompts = nearest_words(request.getfixturevalue(name))
    text = printed(prompts)
    for one in prompts[:3]:
        assert f"{one.weight:.3f} " in text
        assert one.template in text
    assert sum(token.original.shown in text for token in prompts[0].tokens) >= min(6, len(prompts[0].tokens))


def test_however_many_vectors_there_are_the_output_is_short():
    many = [
        prompt(items=tuple(vector(f"w{number}", 0.01 * number) for number in range(60)), weight=1 / 9) for _ in range(9)
    ]
    text = printed(many)
    assert len(text.splitlines()) < 40
    assert "6 lighter prompts of weight 0.667 in all" in text
    assert text.count("… and 54 more") == 3


def test_the_vectors_that_change_most_are_listed_in_the_order_of_the_sentence():
    changes = [-0.1, 0.2, -3.0, 0.0, -0.4, 0.05, 1.0, -0.001, -0.3]
    items = tuple(vector(f"w{number}", change) for number, change in enumerate(changes))
    rows = [line.split() for line in printed([prompt(items=items)]).splitlines() if line.startswith("w")]
    assert [(row[0], row[2]) for row in rows] == [
        ("w0", "−0.10"), ("w1", "+0.20"), ("w2", "−3.00"), ("w4", "−0.40"), ("w6", "+1.00"), ("w8", "−0.30"),
    ]  # fmt: skip


def test_without_facts_the_vectors_that_moved_most_are_listed():
    items = tuple(vector(f"w{number}", None, moved=number / 10) for number in range(10))
    text = printed([prompt(items=items)])
    assert [line.split()[0] for line in text.splitlines() if line.startswith("w")] == [
        "w4",
        "w5",
        "w6",
        "w7",
        "w8",
        "w9",
    ]
    assert "put back" not in text


def test_a_word_is_written_only_where_one_is_near():
    items = (BlankPlace("[X]", False), vector("is", -1.0), vector("of", -2.0, is_near=True))
    text = printed([prompt(items=items)])
    assert [line.split()[1] for line in text.splitlines() if line.startswith(("is ", "of "))] == ["no", "Rome"]
    kept = replace(vector("is", None, moved=0.0, is_near=True), tuned=word(0, "is", 0.001))
    (line,) = (line for line in printed([prompt(items=(kept,))]).splitlines() if line.startswith("is "))
    assert line.split()[:4] == ["is", "is", "unmoved", "0.0"]  # whatever p(w | v) is, which says nothing of its start
    far = [replace(one, is_near=False) if isinstance(one, PromptToken) else one for one in items]
    text = printed([prompt(items=tuple(far))])
    assert "Rome" not in text
    assert "No word is near any of its vectors." in text


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("colour", [BLUE, RED])
def test_every_colour_can_be_read_on_black_and_on_white(colour, p):
    light = lightness(faded(colour, p))
    assert 1.05 / (light + 0.05) >= 4.4  # as WCAG counts contrast; 4.58 is the most that both can have
    assert (light + 0.05) / 0.05 >= 4.4


def test_bars_are_shares_of_the_heaviest_weight():
    lines = printed([prompt(weight=0.8), prompt(weight=0.2, copy=2, copies=3), prompt(weight=1e-5)]).splitlines()
    assert "0.800 ██████████ [X]  [Y]" in lines
    assert "0.200 ██▌ [X]  [Y] copy 2 of 3" in lines
    assert "<0.001 ▏ [X]  [Y]" in lines


def test_notes_tell_what_the_words_do_not():
    deep = replace(vector("is", None), layers={"layers": (0.5, 0.25)})
    text = printed([prompt(items=(deep,), original_is_initial=False, cut_text=" in 1926.")], 200)
    assert "Cut off after [Y], not read by the LM: “in 1926.”" in text
    assert "Mean |Δ| of layers 1 to 2, in spreads: 0.50 0.25." in text
    assert "After [Y], where an answer ends: “.”" in printed([prompt(cut_text=" .", end=".")], 200)
    several = printed([prompt(cut_text=" , it is said .", end=",")], 200)
    assert "Cut off after [Y]: “, it is said .”; an answer ends where “,” follows" in several
    assert "started at random" in text
    assert "started at random" not in printed([prompt()])
    asked = printed([prompt(("a", "b"), facts=16, log_probability=-2.0, change=-1.5)], 200)
    assert "Mean log-loss of the 16 dev facts asked for this: 2.00; with all vectors of this prompt where" in asked
    assert "where they started: 3.50." in asked


@settings(max_examples=50)
@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT), max_size=5), st.integers(1, 100))
def test_words_can_be_anything(words, width):
    text = printed([prompt(*words)], width)
    assert "\x1b" not in text
    for token in prompt(*words).tokens:
        assert token.original.shown.strip() in text
