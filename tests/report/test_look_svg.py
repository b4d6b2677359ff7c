from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from looked_at import ANY_TEXT, prompt, word

from askwell.report.words import BlankPlace, PromptToken, look_at
from askwell.report.words_drawing import BLUE, GREY, RED, faded, width_of, words_svg

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str, kind: str) -> list[ElementTree.Element]:
    """The words of a kind in the rows of prompts."""
    rows = ElementTree.fromstring(svg).findall(f"{SVG}g[@class='prompt']")
    return [text for row in rows for text in row.iter(f"{SVG}text") if text.get("class") == kind]


def spelled(elements: list[ElementTree.Element]) -> list[str]:
    return ["".join(element.itertext()) for element in elements]


@pytest.mark.parametrize("name", ["bert", "gpt2", "deep_bart"])
def test_all_words_are_drawn_in_their_colours(request, name):
    prompts = look_at(request.getfixturevalue(name))
    svg = words_svg(prompts, "A mixture")
    tokens = [token for one in prompts for token in one.tokens]
    changed = [token for token in tokens if not token.is_same_word]
    tuned, original = texts(svg, "tuned"), texts(svg, "original")
    assert spelled(tuned) == [token.tuned.shown for token in tokens]
    assert [text.get("fill") for text in tuned] == [faded(BLUE, token.tuned.brightness) for token in tokens]
    assert spelled(original) == [token.original.shown for token in changed]
    assert [text.get("fill") for text in original] == [faded(RED, token.original.brightness) for token in changed]
    assert ElementTree.fromstring(svg).findtext(f"{SVG}title") == "A mixture"
    ink = spelled(texts(svg, "ink"))
    assert ink.count("[X]") == ink.count("[Y]") == len(prompts)


def test_certain_words_are_vivid_and_chance_is_grey():
    assert faded(BLUE, 1.0) == "#{:02x}{:02x}{:02x}".format(*BLUE)
    assert faded(BLUE, 0.0) == faded(RED, 0.0) == "#{:02x}{:02x}{:02x}".format(*GREY)


def test_letters_grow_with_the_vector():
    def size(ratio: float | None) -> float:
        token = PromptToken(word(0, "is"), word(1, "was"), ratio, ())
        (text,) = texts(words_svg([prompt(items=(token,))], ""), "tuned")
        return float(text.attrib["font-size"])

    assert size(1.5) == pytest.approx(1.5 * size(1.0), abs=0.1)
    assert size(None) == size(1.0)
    assert size(100.0) == size(2.0)
    assert size(0.0) == size(0.5) >= 10


def test_words_of_a_line_do_not_overlap(bert, gpt2):
    for mixture in (bert, gpt2):
        for row in ElementTree.fromstring(words_svg(look_at(mixture), "")).findall(f"{SVG}g[@class='prompt']"):
            ends: dict[str | None, float] = {}
            for text in row.iter(f"{SVG}text"):
                if text.get("text-anchor") == "middle":
                    half = width_of("".join(text.itertext()), float(text.attrib["font-size"])) / 2
                    middle = float(text.attrib["x"])
                    assert middle - half >= ends.get(text.get("y"), 0)
                    ends[text.get("y")] = middle + half


@pytest.mark.parametrize("letters", ["word", "W" * 12, "東京" * 3, "-" * 128])
def test_long_prompts_stay_on_the_page(letters):
    svg = words_svg([prompt(*[(letters, letters)] * 30)], "A long title " * 20)
    root = ElementTree.fromstring(svg)
    for text in root.iter(f"{SVG}text"):
        x, size = float(text.attrib["x"]), float(text.attrib["font-size"])
        width = width_of("".join(text.itertext()), size)
        left = x - width / 2 if text.get("text-anchor") else x
        assert left >= 0
        assert left + width <= 960
        assert 0 < float(text.attrib["y"]) < float(root.attrib["height"])


def test_wide_characters_get_room():
    assert width_of("東京", 10.0) >= 20
    assert width_of("il", 10.0) < width_of("MW", 10.0)


def test_nothing_outside_is_needed(bert):
    svg = words_svg(look_at(bert), "").replace('xmlns="http://www.w3.org/2000/svg"', "")
    for outside in ("http", "href", "url(", "@import", "<script", "<style"):
        assert outside not in svg


@settings(deadline=None, max_examples=50)
@given(ANY_TEXT, st.lists(st.tuples(ANY_TEXT, ANY_TEXT), max_size=4), ANY_TEXT)
def test_the_drawing_is_well_formed_whatever_the_words(title, words, cut):
    one = prompt(*words, cut_text=cut, copy=1, copies=2)
    svg = words_svg([one, prompt(items=(BlankPlace("[X]", True),))], title)
    svg.encode()
    assert spelled(texts(svg, "tuned")) == [token.tuned.shown for token in one.tokens]
