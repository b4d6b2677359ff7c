"""Charts: each value is drawn where it should be, nothing needs another file, and the same chart is the same text."""

import re
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from looked_at import lightness

from askwell.evaluation.confidence import calibration, risk_coverage
from askwell.views.charts import (
    Gap,
    IntervalRow,
    gaps_chart,
    intervals_chart,
    panels_chart,
    reliability_chart,
    risk_coverage_chart,
)
from askwell.views.drawing import PALETTE, Chart, css_variables, text_width

SVG = "{http://www.w3.org/2000/svg}"
FIRST, SECOND = PALETTE["first"].light, PALETTE["second"].light
GAPS = [Gap("manual", 40.0, 10.0), Gap("soft", 95.0, 12.5), Gap("none told", None, 50.0), Gap("reversed", 20.0, 80.0)]
ROWS = [
    IntervalRow("single", {"init": (10.0, 5.0, 20.0), "soft": (60.0, 50.0, 70.0)}, begins="lm"),
    IntervalRow("mined", {"soft": (80.0, 70.0, 90.0)}),
]
PANELS = {f"panel {number}": {"deep": [(0.0, 10.0), (100.0, 90.0)]} for number in range(4)}
SURE = np.array([0.95, 0.85, 0.55, 0.15])
RIGHT = np.array([True, True, False, False])
FOUND = calibration(SURE, RIGHT)
RISKS = {"probability": risk_coverage(SURE, RIGHT), "agreement": risk_coverage(np.array([1.0, 0.5, 0.5, 0.5]), RIGHT)}


def gaps(of=GAPS) -> Chart:
    return gaps_chart(of, first="told", second="withheld", measure="P@1")


def curves() -> Chart:
    lines = {"one": [(0.0, 10.0), (100.0, 60.0), (200.0, 55.0)], "two": [(0.0, 0.0), (200.0, 90.0)]}
    return panels_chart({"a panel": lines}, measure="P@1", trained="pairs")


def panels():
    return panels_chart(PANELS, measure="P@1", trained="pairs")


def intervals():
    return intervals_chart(ROWS, ("init", "soft"), measure="P@1")


def reliability() -> Chart:
    return reliability_chart(FOUND.bins, ece=FOUND.ece)


def risks() -> Chart:
    return risk_coverage_chart(RISKS, chosen=0.1)


every_chart = pytest.mark.parametrize("draw", [gaps, curves, panels, intervals, reliability, risks])


@every_chart
def test_the_same_chart_is_the_same_file_and_holds_no_date(draw):
    first, again = draw(), draw()
    assert first.svg() == again.svg()
    assert first.pdf() == again.pdf()
    assert first.png() == again.png()
    assert first.pdf().startswith(b"%PDF")
    for written in (first.pdf(), first.png()):
        assert b"Date" not in written
        assert b"Software" not in written
    assert not re.search(r"20\d\d-\d\d|metadata", first.svg())


@every_chart
def test_a_chart_is_whole_and_needs_nothing(draw):
    text = draw().svg()
    svg = ElementTree.fromstring(text)
    assert svg.tag == f"{SVG}svg"
    assert [element.tag for element in svg[:3]] == [f"{SVG}title", f"{SVG}desc", f"{SVG}style"]
    names = [element.get("id") for element in svg.iter() if element.get("id")]
    assert len(names) == len(set(names))
    linked = re.findall(r'href="([^"]*)"', text) + re.findall(r"url\(([^)]*)\)", text)
    assert all(link.removeprefix("#") in names for link in linked)


@every_chart
def test_every_colour_has_another_for_dark_pages(draw):
    text = draw().svg()
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
    svg = ElementTree.fromstring(gaps([Gap("a", 75.0, 25.0)]).svg())
    texts = {element.text: element for element in svg.iter(f"{SVG}text")}
    assert {"a", "75", "25"} <= set(texts)
    ticks = {share: float(texts[share].attrib["x"]) for share in ("0", "50")}
    (legend,) = (group for group in svg.iter(f"{SVG}g") if group.get("id") == "legend_1")
    drawn = [use for use in svg.iter(f"{SVG}use") if use not in [*legend.iter()] and FIRST in use.get("style", "")]
    dots = [float(use.attrib["x"]) for use in drawn]
    expected = ticks["0"] + 75 * (ticks["50"] - ticks["0"]) / 50
    assert dots == [pytest.approx(expected, abs=0.01)]


def test_figures_stand_outside_of_the_two_dots():
    for first, second in ((75.0, 25.0), (25.0, 75.0), (50.0, 50.0)):
        svg = ElementTree.fromstring(gaps([Gap("a", first, second)]).svg())
        figures = [element for element in svg.iter(f"{SVG}text") if FIRST in element.get("style", "")]
        figures += [element for element in svg.iter(f"{SVG}text") if SECOND in element.get("style", "")]
        anchors = ["end" if "text-anchor: end" in figure.get("style", "") else "start" for figure in figures]
        assert anchors == (["end", "start"] if first < second else ["start", "end"])


def test_a_chart_is_told_to_those_who_cannot_see_it():
    assert [element.text for element in ElementTree.fromstring(gaps().svg())[:2]] == [
        "P@1, told and withheld",
        "manual: 40.0 and 10.0; soft: 95.0 and 12.5; none told: none and 50.0; reversed: 20.0 and 80.0.",
    ]
    assert [element.text for element in ElementTree.fromstring(curves().svg())[:2]] == [
        "P@1 against pairs",
        "a panel, one: 10.0 at first, 55.0 at the end; a panel, two: 0.0 at first, 90.0 at the end.",
    ]


def test_hostile_labels_stay_text():
    svg = ElementTree.fromstring(gaps([Gap("<b>&amp; $x$", 1.0, 2.0)]).svg())
    assert "<b>&amp; $x$" in {element.text for element in svg.iter(f"{SVG}text")}


def test_drawing_leaves_matplotlib_as_it_was():
    before = dict(matplotlib.rcParams)
    gaps().svg()
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


def heights_of_bars(text: str) -> list[tuple[float, float]]:
    """Left edge and height of each bar that is drawn in the first colour."""
    bars = []
    for path in ElementTree.fromstring(text).iter(f"{SVG}path"):
        if f"fill: {PALETTE['first'].light}" in path.get("style", ""):
            points = [tuple(map(float, pair)) for pair in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.get("d", ""))]
            across, up = zip(*points, strict=True)
            bars.append((min(across), max(up) - min(up)))
    return bars


def test_bars_are_as_high_as_the_share_that_is_right():
    # One answer each in 10–20, 50–60 (both wrong), 80–90 and 90–100 % (both right); axes are 298 × 252 pixels.
    bars = sorted(heights_of_bars(reliability().svg()))
    assert [height for _, height in bars] == pytest.approx([0, 0, 252 / 1.01, 252 / 1.01], abs=0.1)
    width = 380 - 56 - 26
    assert [left for left, _ in bars] == pytest.approx([56 + width * share for share in (0.1, 0.5, 0.8, 0.9)], abs=0.1)


def test_descriptions_hold_the_figures():
    told = reliability().description
    # |0.05| + |0.15| + 0.55 + 0.15 over four answers.
    assert "4 questions, expected calibration error 22.5 %" in told
    assert "80 to 90 %: 100.0 % of 1" in told
    told = risks().description
    # Risks 0, 0, 1/3, 1/2; and 0, then 2/3 of a wrong answer more at each place.
    assert f"probability: area {100 * (1 / 3 + 1 / 2) / 4:.1f}, 50.0 % wrong if all are answered" in told
    assert f"agreement: area {100 * ((2 / 3) / 2 + (4 / 3) / 3 + 2 / 4) / 4:.1f}" in told


def test_each_interval_and_score_is_drawn_at_its_place():
    chart = intervals()
    axes = chart.figure.axes[0]
    drawn = [tuple(line.get_xdata()) for line in axes.lines if len(line.get_xdata())]
    assert drawn == [(5.0, 20.0), (10.0,), (50.0, 70.0), (60.0,), (70.0, 90.0), (80.0,)]
    assert {text.get_text() for text in axes.texts} == {"lm", "single", "mined"}
    assert (chart.title, chart.description) == ("P@1", "lm: single: init 10.0, soft 60.0; mined: soft 80.0.")


def test_each_panel_has_its_lines_and_the_same_axes():
    figure = panels().figure
    assert [axes.get_title(loc="left") for axes in figure.axes] == [*PANELS]
    assert len({axes.get_xlim() + axes.get_ylim() for axes in figure.axes}) == 1
    for axes in figure.axes:
        assert [tuple(line.get_ydata()) for line in axes.lines if len(line.get_ydata())] == [(10.0, 90.0)]
    places = [axes.get_position().bounds for axes in figure.axes]
    assert len(set(places)) == 4
    for number, (left, bottom, width, height) in enumerate(places):
        assert 0 <= left <= left + width <= 1
        assert 0 <= bottom <= bottom + height <= 1
        for other in places[number + 1 :]:
            assert left + width <= other[0] or bottom >= other[1] + other[3] or other[0] + other[2] <= left


def test_more_kinds_than_can_be_distinguished_are_refused():
    kinds = ("a", "b", "c", "d", "e")
    with pytest.raises(ValueError, match="5 of them cannot be distinguished"):
        intervals_chart(ROWS, kinds, measure="P@1")
    with pytest.raises(ValueError, match="5 of them cannot be distinguished"):
        panels_chart({"panel": {kind: [(0.0, 1.0)] for kind in kinds}}, measure="P@1", trained="pairs")
    with pytest.raises(ValueError, match="5 of them cannot be distinguished"):
        risk_coverage_chart(dict.fromkeys(kinds, RISKS["probability"]))


def test_scores_fit_a_phone_however_long_their_labels_are():
    rows = [IntervalRow("a prompt of many words " * 3, {"init": (50.0, 40.0, 60.0)}), ROWS[0]]
    assert intervals_chart(rows, ("init", "soft"), measure="P@1").size[0] <= 480


def test_a_row_for_comparison_has_marks_of_no_kind():
    chart = intervals_chart(
        [*ROWS, IntervalRow("nothing", {"": (5.0, 1.0, 9.0)}, aside=True)], ("init",), measure="P@1"
    )
    assert "nothing: 5.0" in chart.description
    assert [5.0] in [np.asarray(line.get_xdata()).tolist() for line in chart.figure.axes[0].lines]
    assert [text.get_text() for text in chart.figure.legends[0].get_texts()] == ["init"]
