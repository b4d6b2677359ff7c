"""Soft prompts as a chart: every word in its colour and size, none over another, whatever its script."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from looked_at import ANY_TEXT, prompt, word
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from askwell.views.drawing import Chart, chart_style
from askwell.views.words import BlankPlace, PromptToken, PromptWords, nearest_words
from askwell.views.words_figure import BLUE, GREY, RED, faded, words_chart

SVG = "{http://www.w3.org/2000/svg}"


def texts(chart: Chart, kind: str = "") -> list[Text]:
    """The words of a kind in the rows of prompts; all texts, if none is named."""
    return [text for text in chart.figure.axes[0].texts if (text.get_gid() or "").startswith(kind)]


def boxes(chart: Chart) -> dict[Text, Bbox]:
    """Where each text stands, in pixels."""
    with chart_style():
        renderer = FigureCanvasAgg(chart.figure).get_renderer()
        return {text: text.get_window_extent(renderer) for text in texts(chart) if text.get_text()}


@pytest.mark.parametrize("name", ["bert", "gpt2", "deep_bart"])
def test_all_words_are_drawn_in_their_colours(request, name):
    prompts = nearest_words(request.getfixturevalue(name))
    chart = words_chart(prompts, "A mixture")
    tokens = [token for one in prompts for token in one.tokens]
    near = [token for token in tokens if token.is_near]
    changed = [token for token in tokens if not (token.is_near and token.is_same_word)]
    tuned, original = texts(chart, "tuned"), texts(chart, "original")
    assert [text.get_text() for text in tuned] == [token.tuned.shown for token in near]
    assert [text.get_color() for text in tuned] == [faded(BLUE, token.tuned.brightness) for token in near]
    assert [text.get_text() for text in original] == [token.original.shown for token in changed]
    assert [text.get_color() for text in original] == [faded(RED, token.original.brightness) for token in changed]
    assert [text.get_text() for text in texts(chart, "moved")] == [f"{token.moved:.1f}" for token in tokens]
    assert not texts(chart, "change")
    blanks = [text.get_text().removeprefix("‿") for text in texts(chart, "blank")]
    assert blanks.count("[X]") == blanks.count("[Y]") == len(prompts)


def test_the_svg_keeps_words_as_text_and_tells_their_weights(bert):
    prompts = nearest_words(bert)
    svg = ElementTree.fromstring(words_chart(prompts, "A <b> mixture").svg())
    written = [element.text for element in svg.iter(f"{SVG}text")]
    assert svg.findtext(f"{SVG}title") == "A <b> mixture"
    assert {shown.shown for one in prompts for token in one.tokens for shown in token.words} <= set(written)
    described = svg.findtext(f"{SVG}desc") or ""
    assert all(f"weight {one.weight:.3f}: " in described for one in prompts)


def test_certain_words_are_vivid_and_chance_is_a_greyish_tint_of_them():
    assert faded(BLUE, 1.0) == "#{:02x}{:02x}{:02x}".format(*BLUE)
    for colour in (BLUE, RED):
        for channel, full, grey in zip(to_rgb(faded(colour, 0.0)), colour, GREY, strict=True):
            assert min(full, grey) < 255 * channel < max(full, grey)
    assert faded(BLUE, 0.0) != faded(RED, 0.0)


def test_what_is_lost_without_a_vector_is_below_its_word():
    (token,) = prompt(("a", "b")).tokens
    items = [replace(token, change=change) for change in (-0.5, 0.25, 0.001)]
    chart = words_chart([prompt(items=tuple(items))], "")
    assert [text.get_text() for text in texts(chart, "change")] == ["−0.50", "+0.25", "0"]
    for below, above in (("change", "moved"), ("moved", "original"), ("original", "tuned")):
        rows = zip(texts(chart, below), texts(chart, above), strict=True)
        assert all(one.get_position()[1] > other.get_position()[1] for one, other in rows)


def test_letters_grow_with_the_vector():
    def size(ratio: float | None) -> float:
        token = PromptToken(word(0, "is"), word(1, "was"), ratio, ())
        (text,) = texts(words_chart([prompt(items=(token,))], ""), "tuned")
        return float(text.get_fontsize())

    assert size(1.5) == pytest.approx(1.5 * size(1.0), abs=0.1)
    assert size(None) == size(1.0)
    assert size(100.0) == size(2.0)
    assert size(0.0) == size(0.5) >= 10


def long_prompt(letters: str) -> PromptWords:
    return prompt(*[(letters, letters)] * 30, cut_text="and so on " * 30, copy=1, copies=2)


@pytest.mark.parametrize("letters", ["word", "W" * 12, "東京" * 3, "-" * 128, "مدينة"])
def test_nothing_overlaps_and_all_stays_on_the_page(letters):
    chart = words_chart([long_prompt(letters), prompt(("a", "b"))], "A long title " * 20)
    _check_layout(chart)


def test_real_words_do_not_overlap(bert, gpt2, deep_bart):
    for mixture in (bert, gpt2, deep_bart):
        _check_layout(words_chart(nearest_words(mixture), "A mixture"))


def _check_layout(chart: Chart) -> None:
    found = list(boxes(chart).values())
    width, height = chart.figure.get_size_inches() * 72
    for number, box in enumerate(found):
        assert 0 <= box.x0 <= box.x1 <= width
        assert 0 <= box.y0 <= box.y1 <= height
        for other in found[number + 1 :]:
            # Boxes of texts have some room for ascenders and descenders above and below.
            across = min(box.x1, other.x1) - max(box.x0, other.x0)
            up = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert across <= 1 or up <= 0.35 * min(box.height, other.height)


def test_nothing_outside_is_needed(bert):
    svg = words_chart(nearest_words(bert), "").svg()
    svg = re.sub(r'xmlns(:xlink)?="http://www.w3.org/[^"]+"', "", svg)
    for outside in ("http", "href", "url(", "@import", "<script"):
        assert outside not in svg


@pytest.mark.parametrize("write", [lambda chart: chart.svg(), Chart.pdf, Chart.png])
def test_the_same_words_are_the_same_file_in_any_script(write):
    def chart() -> Chart:
        return words_chart([prompt(("東京", "مدينة"), ("हिन्दी", "😀"), ("$x$", "\x00"))], "Wörter 東京")

    assert write(chart()) == write(chart())


@settings(max_examples=25)
@given(ANY_TEXT, st.lists(st.tuples(ANY_TEXT, ANY_TEXT), max_size=4), ANY_TEXT)
def test_the_drawing_is_well_formed_whatever_the_words(title, words, cut):
    one = prompt(*words, cut_text=cut, copy=1, copies=2)
    chart = words_chart([one, prompt(items=(BlankPlace("[X]", True),))], title)
    written = [element.text for element in ElementTree.fromstring(chart.svg()).iter(f"{SVG}text")]
    assert {token.tuned.shown for token in one.tokens} <= set(written)
    assert chart.png().startswith(b"\x89PNG")
