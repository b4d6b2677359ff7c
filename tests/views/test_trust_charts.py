"""The reliability diagram and the risk–coverage curve: values in the right positions, the same bytes each time."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from askwell.evaluation.confidence import calibration, risk_coverage
from askwell.views.charts import reliability_chart, risk_coverage_chart
from askwell.views.drawing import PALETTE, Chart

SURE = np.array([0.95, 0.85, 0.55, 0.15])
RIGHT = np.array([True, True, False, False])
FOUND = calibration(SURE, RIGHT)
CURVES = {"probability": risk_coverage(SURE, RIGHT), "agreement": risk_coverage(np.array([1.0, 0.5, 0.5, 0.5]), RIGHT)}
SVG = "{http://www.w3.org/2000/svg}"


def chart(kind: str) -> Chart:
    if kind == "reliability":
        return reliability_chart(FOUND.bins, ece=FOUND.ece)
    return risk_coverage_chart(CURVES, chosen=0.1)


def draw(kind: str) -> str:
    return chart(kind).svg()


def pdf(kind: str) -> bytes:
    return chart(kind).pdf()


@pytest.mark.parametrize("kind", ["reliability", "risk and coverage"])
def test_the_same_chart_is_the_same_file(kind):
    assert draw(kind) == draw(kind)
    assert pdf(kind) == pdf(kind)
    assert pdf(kind).startswith(b"%PDF")
    assert b"CreationDate" not in pdf(kind)
    text = draw(kind)
    assert not re.search(r"20\d\d-\d\d", text)
    light = {colour.light for colour in PALETTE.values()}
    assert set(re.findall(r"(?:fill|stroke): (#\w+)", text)) <= light  # for each of them there is a dark one


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
    bars = sorted(heights_of_bars(draw("reliability")))
    assert [height for _, height in bars] == pytest.approx([0, 0, 252 / 1.01, 252 / 1.01], abs=0.1)
    width = 380 - 56 - 26
    assert [left for left, _ in bars] == pytest.approx([56 + width * share for share in (0.1, 0.5, 0.8, 0.9)], abs=0.1)


def test_descriptions_hold_the_figures():
    told = chart("reliability").description
    # |0.05| + |0.15| + 0.55 + 0.15 over four answers.
    assert "4 questions, expected calibration error 22.5 %" in told
    assert "80 to 90 %: 100.0 % of 1" in told
    told = chart("risk and coverage").description
    # Risks 0, 0, 1/3, 1/2; and 0, then 2/3 of a wrong answer more at each place.
    assert f"probability: area {100 * (1 / 3 + 1 / 2) / 4:.1f}, 50.0 % wrong if all are answered" in told
    assert f"agreement: area {100 * ((2 / 3) / 2 + (4 / 3) / 3 + 2 / 4) / 4:.1f}" in told


def test_five_curves_cannot_be_told_apart():
    with pytest.raises(ValueError, match="5 of them cannot be distinguished"):
        risk_coverage_chart({str(n): CURVES["probability"] for n in range(5)})
