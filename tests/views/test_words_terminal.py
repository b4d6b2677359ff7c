import io
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from looked_at import ANY_TEXT, lightness, prompt, word
from rich.console import Console

from askwell.views.words import BlankPlace, PromptToken, PromptWords, nearest_words
from askwell.views.words_figure import BLUE, RED, faded, print_words

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def printed(prompts: list[PromptWords], width: int = 80, **options: Any) -> str:
    written = io.StringIO()
    print_words(prompts, Console(file=written, width=width, **options))
    return written.getvalue()


def in_colour(prompts: list[PromptWords], width: int = 80, **options: Any) -> str:
    return printed(prompts, width, force_terminal=True, color_system="truecolor", no_color=False, **options)


def words_of(prompts: list[PromptWords]) -> list[str]:
    words = []
    for one in prompts:
        for item in one.items:
            if isinstance(item, BlankPlace):
                words.append(item.shown)
            else:
                words += [item.tuned.shown] + ([] if item.is_same_word else [item.original.shown])
    return words


def cells(text: str, labels: tuple[str, ...] = ("tuned", "original")) -> list[str]:
    """All that stands in the lines of words, cut at the gaps between columns."""
    lines = [line for line in text.splitlines() if line.startswith(tuple(f"{label}  " for label in labels))]
    return [cell for line in lines for cell in re.split(r"  +", line)[1:] if cell]


@pytest.mark.parametrize("width", [1, 40, 80, 160])
@pytest.mark.parametrize("look", [printed, in_colour])
@pytest.mark.parametrize("name", ["bert", "gpt2", "deep_bart"])
def test_no_word_is_lost_at_any_width(request, name, look, width):
    prompts = nearest_words(request.getfixturevalue(name))
    text = ESCAPE.sub("", look(prompts, width))
    assert sorted(cells(text)) == sorted(words_of(prompts))
    assert "explanation" in text


@pytest.mark.parametrize("width", [40, 80, 160])
def test_lines_fit_the_width(bert, gpt2, width):
    for mixture in (bert, gpt2):
        lines = ESCAPE.sub("", in_colour(nearest_words(mixture), width)).splitlines()
        assert max(len(line) for line in lines if line.startswith(("tuned  ", "original  "))) <= width


def test_original_words_stand_under_tuned_ones():
    text = ESCAPE.sub("", in_colour([prompt(("Rome", "is"), ("of", "founded"))])).splitlines()
    assert text[1].split() == ["tuned", "[X]", "Rome", "of", "[Y]"]
    assert text[4].split() == ["original", "is", "founded"]
    assert [text[4].index(word) for word in ("is", "founded")] == [text[1].index(word) for word in ("Rome", "of")]


def test_an_unchanged_word_is_written_once():
    same = word(7, "city", 0.9)
    unchanged = PromptToken(same, same, 1.0, ())
    text = in_colour([prompt(items=(BlankPlace("[X]", False), unchanged, BlankPlace("[Y]", False)))])
    assert text.count("city") == 1
    assert cells(ESCAPE.sub("", text)) == ["[X]", "city", "[Y]"]


def test_colours_fade_with_probability():
    text = in_colour([prompt(items=(PromptToken(word(0, "red", 0.0), word(1, "blue", 1.0), 1.2, ()),))])
    blue, red = ";".join(map(str, BLUE)), ";".join(str(int(faded(RED, 0.0)[at : at + 2], 16)) for at in (1, 3, 5))
    assert f"\x1b[38;2;{blue}mblue" in text
    assert f"\x1b[38;2;{red}mred" in text


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("colour", [BLUE, RED])
def test_every_colour_can_be_read_on_black_and_on_white(colour, p):
    light = lightness(faded(colour, p))
    assert 1.05 / (light + 0.05) >= 4.4  # as WCAG counts contrast; 4.58 is the most that both can have
    assert (light + 0.05) / 0.05 >= 4.4


def test_no_colour_is_plain_text_with_numbers(bert, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    text = printed(nearest_words(bert), force_terminal=True)
    assert "38;" not in text
    assert re.search(r"^p +0\.", text, re.MULTILINE)
    assert re.search(r"^size +×\d", text, re.MULTILINE)
    file = printed(nearest_words(bert))
    assert "\x1b" not in file
    assert file == ESCAPE.sub("", text).replace("\x1b", "")


def test_bars_are_shares_of_the_heaviest_weight():
    lines = printed([prompt(weight=0.8), prompt(weight=0.2, copy=2, copies=3), prompt(weight=1e-5)]).splitlines()
    assert "0.800 ██████████" in lines
    assert "0.200 ██▌ copy 2 of 3" in lines
    assert "<0.001 ▏" in lines


def test_notes_tell_what_the_words_do_not():
    odd = prompt(original_is_initial=False, cut_text=" in 1926.", deep_norms={"layers": (0.5, 0.25)})
    text = printed([odd], 200)
    assert "cut off after [Y], not read by the LM: “in 1926.”" in text
    assert "mean |Δ| of layers 1 to 2: 0.50 0.25" in text
    assert "after [Y], where an answer ends: “.”" in printed([prompt(cut_text=" .", end=".")], 200)
    several = printed([prompt(cut_text=" , it is said .", end=",")], 200)
    assert "cut off after [Y]: “, it is said .”; an answer ends where “,” follows" in several
    assert "started at random" in text
    assert "started at random" not in printed([prompt()])


@settings(max_examples=50)
@given(st.lists(st.tuples(ANY_TEXT, ANY_TEXT), max_size=5), st.integers(1, 100))
def test_words_can_be_anything(words, width):
    prompts = [prompt(*words)]
    text = ESCAPE.sub("", in_colour(prompts, width))
    assert "\x1b" not in text
    for shown in words_of(prompts):
        assert shown.rstrip() in text
