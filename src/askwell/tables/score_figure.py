"""P@1 by source and kind, with intervals."""

import math
from collections.abc import Sequence

from askwell.report.charts.drawn import chart_style, svg_of
from askwell.report.charts.intervals import Interval, IntervalRow, described, intervals_figure
from askwell.report.charts.pdf import pdf_of
from askwell.tables.captions import caption_of, groups_of
from askwell.tables.figure import StudyFigure
from askwell.tables.group import RunGroup
from askwell.tables.kinds import ARROWS
from askwell.tables.lines import Line
from askwell.tables.study import file_name

_MEASURE = "P@1 in per cent"
_Z = 1.959963984540054  # of a 95 % interval


def score_figure(lines: Sequence[Line], fact_set: str) -> StudyFigure:
    """A row for each LM and source, with init, soft and deep in it."""
    rows, seen = [], set()
    for line in lines:
        marks = {kind: interval(line.groups[kind]) for kind in ARROWS if kind in line.groups}
        rows.append(IntervalRow(line.label, marks, begins="" if line.lm in seen else line.lm))
        seen.add(line.lm)
    name = file_name("scores", fact_set)
    with chart_style():
        figure = intervals_figure(rows, ARROWS, measure=_MEASURE)
        svg, pdf = svg_of(figure, name, described(rows, _MEASURE)), pdf_of(figure)
    what = (
        "P@1 of prompts as they are (init), tuned at layer 0 (soft) and at all layers (deep). Lines are Wilson's 95 % "
        "intervals, each test fact counted once; the spread over seeds is not in them."
    )
    return StudyFigure(
        name, f"{fact_set}: P@1 by prompts and kind", caption_of(what, groups_of(lines, ARROWS), spread=False), svg, pdf
    )


def interval(group: RunGroup) -> Interval:
    """The micro P@1 of a group and its Wilson interval, as of one draw of its facts."""
    score = group.score("P@1").mean
    low, high = wilson(score / 100, group.facts)
    return Interval(score, 100 * low, 100 * high)


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of so many things."""
    middle = share + _Z**2 / (2 * count)
    reach = _Z * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    scale = 1 + _Z**2 / count
    return max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)
