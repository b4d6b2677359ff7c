"""Dot plots with intervals and panels of curves: values are drawn where they should be, in the page's colours."""

import re

import pytest

from askwell.views.charts import IntervalRow, intervals_chart, panels_chart
from askwell.views.drawing import PALETTE

ROWS = [
    IntervalRow("single", {"init": (10.0, 5.0, 20.0), "soft": (60.0, 50.0, 70.0)}, begins="lm"),
    IntervalRow("mined", {"soft": (80.0, 70.0, 90.0)}),
]
PANELS = {f"panel {number}": {"deep": [(0.0, 10.0), (100.0, 90.0)]} for number in range(4)}


def charts():
    return (
        intervals_chart(ROWS, ("init", "soft"), measure="P@1"),
        panels_chart(PANELS, measure="P@1", trained="pairs"),
    )


def test_each_interval_and_score_is_drawn_at_its_place():
    chart = charts()[0]
    axes = chart.figure.axes[0]
    drawn = [tuple(line.get_xdata()) for line in axes.lines if len(line.get_xdata())]
    assert drawn == [(5.0, 20.0), (10.0,), (50.0, 70.0), (60.0,), (70.0, 90.0), (80.0,)]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["lm", "single", "mined"]
    assert (chart.title, chart.description) == ("P@1", "lm: single: init 10.0, soft 60.0; mined: soft 80.0.")


def test_each_panel_has_its_lines_and_the_same_axes():
    figure = charts()[1].figure
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


@pytest.mark.parametrize("number", [0, 1])
def test_colours_are_the_pages_and_files_the_same_each_time(number):
    svgs = [charts()[number].svg() for _ in range(2)]
    pdfs = [charts()[number].pdf() for _ in range(2)]
    assert svgs[0] == svgs[1]
    assert pdfs[0] == pdfs[1]
    assert b"Date" not in pdfs[0]
    light = {colour.light for colour in PALETTE.values()}
    assert set(re.findall(r"(?:fill|stroke): (#\w+)", svgs[0])) <= light  # for each of them there is a dark one


def test_more_kinds_than_can_be_distinguished_are_refused():
    kinds = ("a", "b", "c", "d", "e")
    with pytest.raises(ValueError, match="5 of them cannot be distinguished"):
        intervals_chart(ROWS, kinds, measure="P@1")
    with pytest.raises(ValueError, match="5 of them cannot be distinguished"):
        panels_chart({"panel": {kind: [(0.0, 1.0)] for kind in kinds}}, measure="P@1", trained="pairs")
