"""Charts: each value is drawn where it should be, nothing needs another file, and the same chart is the same text."""

import re
from xml.etree import ElementTree

import matplotlib
import pytest
from looked_at import lightness

from askwell.views.charts import Gap, gaps_chart, panels_chart
from askwell.views.drawing import PALETTE, Chart, css_variables, text_width

SVG = "{http://www.w3.org/2000/svg}"
FIRST, SECOND = PALETTE["first"].light, PALETTE["second"].light
GAPS = [Gap("manual", 40.0, 10.0), Gap("soft", 95.0, 12.5), Gap("none told", None, 50.0), Gap("reversed", 20.0, 80.0)]


def curves() -> Chart:
    lines = {"one": [(0.0, 10.0), (100.0, 60.0), (200.0, 55.0)], "two": [(0.0, 0.0), (200.0, 90.0)]}
    return panels_chart({"a panel": lines}, measure="P@1", trained="pairs")


def gaps(of=GAPS) -> Chart:
    return gaps_chart(of, first="told", second="withheld", measure="P@1")


def draw_gaps(of=GAPS) -> str:
    return gaps(of).svg()


@pytest.mark.parametrize("draw", [curves, gaps])
def test_the_same_chart_is_the_same_file_and_holds_no_date(draw):
    first, again = draw().svg(), draw().svg()
    assert first == again
    for write in (Chart.pdf, Chart.png):
        assert write(draw()) == write(draw())
        assert b"Date" not in write(draw())
        assert b"Software" not in write(draw())
    assert not re.search(r"20\d\d-\d\d", first)
    assert "metadata" not in first


@pytest.mark.parametrize("text", [curves().svg(), draw_gaps()])
def test_a_chart_is_whole_and_needs_nothing(text):
    svg = ElementTree.fromstring(text)
    assert svg.tag == f"{SVG}svg"
    assert [element.tag for element in svg[:3]] == [f"{SVG}title", f"{SVG}desc", f"{SVG}style"]
    names = [element.get("id") for element in svg.iter() if element.get("id")]
    assert len(names) == len(set(names))
    linked = re.findall(r'href="([^"]*)"', text) + re.findall(r"url\(([^)]*)\)", text)
    assert all(link.removeprefix("#") in names for link in linked)


@pytest.mark.parametrize("text", [curves().svg(), draw_gaps()])
def test_every_colour_has_another_for_dark_pages(text):
    dark = re.search(r"prefers-color-scheme:dark\){(.*)}</style>", text)
    assert dark is not None
    drawn = set(re.findall(r"(fill|stroke): (#\w+)", text[dark.end() :]))
    assert drawn
    for part, colour in drawn:
        (role,) = (one for one in PALETTE.values() if one.light == colour)
        assert f'[style*="{part}: {colour}"]{{{part}:{role.dark}!important}}' in dark[1]


def test_a_file_on_its_own_has_paper_and_plain_colours():
    """Not every viewer of SVG knows CSS variables."""
    text = gaps().svg()
    assert "var(" not in text
    assert f"fill: {PALETTE['paper'].light}" in text
    assert f"fill: {PALETTE['first'].light}" in text


def test_a_png_is_twice_as_wide_as_the_svg():
    width = float(ElementTree.fromstring(gaps().svg()).attrib["width"])
    assert int.from_bytes(gaps().png()[16:20], "big") == 2 * width  # of the header chunk


def test_wide_characters_get_room():
    assert text_width("東京", 10.0) >= 20
    assert text_width("il", 10.0) < text_width("MW", 10.0)
    assert text_width("il", 20.0) == pytest.approx(2 * text_width("il", 10.0))


def test_a_gap_shows_its_figures_and_stands_to_scale():
    svg = ElementTree.fromstring(draw_gaps([Gap("a", 75.0, 25.0)]))
    texts = {element.text: element for element in svg.iter(f"{SVG}text")}
    assert {"a", "75", "25"} <= set(texts)
    ticks = {share: float(texts[share].attrib["x"]) for share in ("0", "50")}
    dots = sorted(float(use.attrib["x"]) for use in svg.iter(f"{SVG}use") if FIRST in use.get("style", ""))
    expected = ticks["0"] + 75 * (ticks["50"] - ticks["0"]) / 50
    assert dots == [pytest.approx(expected, abs=0.01)]


def test_figures_stand_outside_of_the_two_dots():
    for first, second in ((75.0, 25.0), (25.0, 75.0), (50.0, 50.0)):
        svg = ElementTree.fromstring(draw_gaps([Gap("a", first, second)]))
        figures = [element for element in svg.iter(f"{SVG}text") if FIRST in element.get("style", "")]
        figures += [element for element in svg.iter(f"{SVG}text") if SECOND in element.get("style", "")]
        anchors = ["end" if "text-anchor: end" in figure.get("style", "") else "start" for figure in figures]
        assert anchors == (["end", "start"] if first < second else ["start", "end"])


def test_a_chart_is_told_to_those_who_cannot_see_it():
    assert [element.text for element in ElementTree.fromstring(draw_gaps())[:2]] == [
        "P@1, told and withheld",
        "manual: 40.0 and 10.0; soft: 95.0 and 12.5; none told: none and 50.0; reversed: 20.0 and 80.0.",
    ]
    assert [element.text for element in ElementTree.fromstring(curves().svg())[:2]] == [
        "P@1 against pairs",
        "a panel, one: 10.0 at first, 55.0 at the end; a panel, two: 0.0 at first, 90.0 at the end.",
    ]


def test_hostile_labels_stay_text():
    svg = ElementTree.fromstring(draw_gaps([Gap("<b>&amp; $x$", 1.0, 2.0)]))
    assert "<b>&amp; $x$" in {element.text for element in svg.iter(f"{SVG}text")}


def test_drawing_leaves_matplotlib_as_it_was():
    before = dict(matplotlib.rcParams)
    draw_gaps()
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("role", sorted(set(PALETTE) - {"paper", "panel", "rule"}))
def test_every_colour_can_be_read_on_its_paper(role):
    """At least the contrast of 4.5 that WCAG asks for text."""
    for colour, paper in (
        (PALETTE[role].light, PALETTE["paper"].light),
        (PALETTE[role].dark, PALETTE["paper"].dark),
    ):
        dim, bright = sorted((lightness(colour), lightness(paper)))
        assert (bright + 0.05) / (dim + 0.05) >= 4.5


def test_light_colours_are_told_apart_by_their_code():
    """A chart's colours become roles by their code, so no two roles may share one."""
    assert len({colour.light for colour in PALETTE.values()}) == len(PALETTE)
    assert "--ink: #1f2328;" in css_variables(dark=False)
