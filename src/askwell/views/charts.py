"""The kinds of charts, all of plain numbers: learning curves, gaps between two percentages, scores with intervals,
calibration, abstention; and plots for notebooks."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from askwell.views.drawing import (
    LINES,
    MARKERS,
    Chart,
    chart_style,
    heading,
    light,
    new_figure,
    percent_axis,
    place,
)
from askwell.views.printable import shortened

_ACROSS = 2
_PANEL_WIDTH, _PANEL_HEIGHT, _PANEL_TOP = 300, 220, 34


Curve = Sequence[tuple[float, float]]
"""How much was trained on, and the score there."""


@chart_style()
def panels_chart(panels: Mapping[str, Mapping[str, Curve]], *, measure: str, trained: str) -> Chart:
    """Draw learning curves: panels in rows of two, by their headings, with the same axes and a line for each kind of
    run."""
    kinds = dict.fromkeys(kind for curves in panels.values() for kind in curves)
    across, down = min(_ACROSS, max(1, len(panels))), math.ceil(len(panels) / _ACROSS)
    has_legend = len(panels) > 1 or len(kinds) > 1
    above = _PANEL_TOP if has_legend else 0
    width, height = _PANEL_WIDTH * across, _PANEL_HEIGHT * down + above + 8
    figure = new_figure(width, height)
    furthest = max((x for curves in panels.values() for curve in curves.values() for x, _ in curve), default=1.0) or 1.0
    looks = {
        kind: _curve(number, marker=MARKERS[number], markersize=3.5, linewidth=1.6)
        for number, kind in enumerate(_distinct(kinds))
    }
    for number, (name, curves) in enumerate(panels.items()):
        column, row = number % across, number // across
        axes = place(
            figure,
            left=column * _PANEL_WIDTH + 48,
            right=(across - column - 1) * _PANEL_WIDTH + 14,
            top=above + row * _PANEL_HEIGHT + 32,
            bottom=height - above - (row + 1) * _PANEL_HEIGHT + 44,
        )
        for kind, curve in curves.items():
            axes.plot(*zip(*curve, strict=True), clip_on=False, **looks[kind])
        axes.set_ylim(-3, 103)
        percent_axis(axes, "y")
        axes.set_xlim(-0.02 * furthest, 1.03 * furthest)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.grid(visible=True, axis="y")
        heading(axes, name, size=11.0)
        axes.set_xlabel(trained, labelpad=4)
        axes.set_ylabel(measure if column == 0 else "", labelpad=2)
    for kind, look in looks.items():
        figure.axes[0].plot([], [], label=kind, **look)
    if has_legend:
        figure.legend(loc="upper left", ncols=len(kinds), frameon=False, handlelength=3.2)
    told = "; ".join(
        f"{name}, {kind}: {curve[0][1]:.1f} at first, {curve[-1][1]:.1f} at the end"
        for name, curves in panels.items()
        for kind, curve in curves.items()
    )
    return Chart(figure, f"{measure} against {trained}", f"{told}.")


_ROWS_WIDTH, _ROW, _ROWS_LEFT = 460.0, 44.0, 12
_LEFT_END = -9
"""Where an axis of per cent begins, with room for the figure of a dot at 0."""
_TO_ITS_DOT = 10.0  # from a dot to its figure, in pixels


@dataclass(frozen=True)
class Gap:
    """A row: two percentages, either of which may be missing."""

    label: str
    first: float | None
    second: float | None
    aside: bool = False
    """Whether it is shown for comparison only, with a pale label."""


@chart_style()
def gaps_chart(gaps: Sequence[Gap], *, first: str, second: str, measure: str) -> Chart:
    """Draw two percentages in each row and the gap between them: `first` is a full dot, `second` a hollow diamond."""
    figure = new_figure(_ROWS_WIDTH, 62 + _ROW * len(gaps))
    axes = place(figure, left=_ROWS_LEFT, top=32, right=22, bottom=30)
    marks = {"first": _mark("o", "first", filled=True), "second": _mark("D", "second", filled=False)}
    for mark, name in zip(marks.values(), (first, second), strict=True):
        axes.plot([], [], label=name, **mark)
    for row, gap in enumerate(gaps):
        ends = {"second": gap.second, "first": gap.first}
        shares = {role: share for role, share in ends.items() if share is not None}
        if len(shares) == 2:
            axes.plot([*shares.values()], [row, row], color=light("pale"), linewidth=1.6, alpha=0.55, zorder=2)
        rightmost = max(reversed(shares), key=shares.__getitem__, default=None)  # of equal ones the first
        for role, share in shares.items():
            side = 1 if role == rightmost else -1
            axes.plot([share], [row], clip_on=False, zorder=3, **marks[role])
            axes.annotate(
                f"{share:.0f}", (share, row), xytext=(side * _TO_ITS_DOT, 0), textcoords="offset points",
                ha="left" if side > 0 else "right", va="center_baseline", fontsize=11, color=light(role),
                annotation_clip=False,
            )  # fmt: skip
    axes.set_xlim(_LEFT_END, 109)
    axes.set_ylim(len(gaps) - 0.5, -0.5)
    percent_axis(axes, "x", sign=True)
    axes.set_yticks([])
    for row, gap in enumerate(gaps):
        _label_above(axes, gap.label, row, aside=gap.aside)
    _rows_only(axes)
    _legend_above(figure, _ROWS_LEFT)
    told = []
    for gap in gaps:
        one, other = ("none" if share is None else f"{share:.1f}" for share in (gap.first, gap.second))
        told.append(f"{gap.label}: {one} and {other}")
    return Chart(figure, f"{measure}, {first} and {second}", f"{'; '.join(told)}.")


def _label_above(
    axes: Axes, label: str, row: int | float, *, aside: bool = False, lift: float = 9.0, **how: Any
) -> None:
    """Write the label of a row above its dots, so that the chart is narrow enough for a phone."""
    colour, at = light("pale" if aside else "ink"), (_LEFT_END + 1, row)
    axes.annotate(label, at, xytext=(0, lift), textcoords="offset points", color=colour, zorder=4, **how)


def _rows_only(axes: Axes) -> None:
    """Leave axes with labelled rows and vertical grid lines, but no frame."""
    axes.grid(visible=True, axis="x")
    axes.tick_params(pad=6)
    for side in axes.spines.values():
        side.set_visible(False)


def _legend_above(figure: Figure, left: int) -> None:
    """Put the legend above the axes, flush with their left side, in one line."""
    names = figure.axes[0].get_legend_handles_labels()[1]
    corner = (left / figure.bbox.width - 0.02, 1.0)
    figure.legend(loc="upper left", ncols=len(names), frameon=False, bbox_to_anchor=corner)


_MARK_STEP = 10.0  # between the marks of a row in pixels, so that no interval hides another
_MARKS = (("o", "pale"), ("o", "first"), ("D", "second"), ("s", "series-1"))
"""Markers and colours; the first, of untuned prompts, is hollow."""


@dataclass(frozen=True)
class IntervalRow:
    """A row; `begins` is the heading of the group of rows that it is the first of."""

    label: str
    marks: Mapping[str, tuple[float, float, float]]
    """By kind: a score and the ends of its interval, in per cent."""
    begins: str = ""
    aside: bool = False
    """Whether it is shown for comparison only, with a pale label and marks that are in no legend."""


@chart_style()
def intervals_chart(rows: Sequence[IntervalRow], kinds: Sequence[str], *, measure: str) -> Chart:
    """Draw scores with their intervals: a row for each way of asking, in it a mark for each kind of run."""
    places, headings = _places(rows)
    last = places[-1] if places else 0.0
    most = max((len(row.marks) for row in rows), default=1)
    row_height = _ROW + _MARK_STEP * max(0, most - 2)
    figure = new_figure(_ROWS_WIDTH, 76 + row_height * (last + 1))
    axes = place(figure, left=_ROWS_LEFT, top=30, right=22, bottom=46)
    looks = zip(_distinct(kinds), _MARKS, strict=False)
    marks = {kind: _mark(shape, role, filled=role != "pale") for kind, (shape, role) in looks}
    for kind, mark in marks.items():
        axes.plot([], [], label=kind, **mark)
    for row, at in zip(rows, places, strict=True):
        looks_of_row = dict.fromkeys(row.marks, _mark("o", "pale", filled=True)) if row.aside else marks
        for number, kind in enumerate(kind for kind in looks_of_row if kind in row.marks):
            score, low, high = row.marks[kind]
            y = at + _MARK_STEP / row_height * (number - (len(row.marks) - 1) / 2)
            mark, colour = looks_of_row[kind], looks_of_row[kind]["markeredgecolor"]
            axes.plot([low, high], [y, y], color=colour, linewidth=1.6, solid_capstyle="butt", zorder=2)
            axes.plot([score], [y], clip_on=False, zorder=3, **mark)
    axes.set_xlim(_LEFT_END, 109)
    axes.set_ylim(last + 0.5, -0.5)
    percent_axis(axes, "x", sign=True)
    axes.set_xlabel(measure)
    axes.set_yticks([])
    for row, at in zip(rows, places, strict=True):
        _label_above(axes, row.label, at, aside=row.aside, lift=9.0 + _MARK_STEP / 2 * max(0, len(row.marks) - 1))
    for at, text in headings.items():
        _label_above(axes, text, at, lift=0.0, fontweight="bold")
    _rows_only(axes)
    _legend_above(figure, _ROWS_LEFT)
    told = []
    for row in rows:
        scores = ", ".join(f"{kind} {score:.1f}".strip() for kind, (score, _, _) in row.marks.items())
        told.append(f"{f'{row.begins}: ' if row.begins else ''}{row.label}: {scores or 'none'}")
    return Chart(figure, measure, f"{'; '.join(told)}.")


def _places(rows: Sequence[IntervalRow]) -> tuple[list[float], dict[float, str]]:
    """Return the height of each row, and the headings of groups by height."""
    places: list[float] = []
    headings: dict[float, str] = {}
    at = 0.0
    for row in rows:
        if row.begins:
            headings[at] = row.begins
            at += 0.75
        places.append(at)
        at += 1.0
    return places, headings


def _mark(shape: str, role: str, *, filled: bool) -> dict[str, Any]:
    return {
        "linestyle": "none",
        "marker": shape,
        "markersize": 7.0 if shape == "o" else 6.0,
        "markeredgewidth": 1.6,
        "markeredgecolor": light(role),
        "markerfacecolor": light(role if filled else "paper"),
    }


# A room below this file defines them: `Bin` and `RiskCoverage` of evaluation/confidence.py.
ReliabilityBin = Any
"""How many answers have a probability from `low` to `high`, their mean `confidence`, and their `accuracy`."""
RiskCurve = Any
"""The fractions of wrong answers (`risks`) at some `coverages`, and the `area` below the curve."""


@chart_style()
def reliability_chart(bins: Sequence[ReliabilityBin], *, ece: float) -> Chart:
    """Draw the fraction of right answers by the probability of the best answer; below, the number of answers."""
    figure = new_figure(380, 400)
    upper = place(figure, left=56, top=30, right=26, bottom=118)
    lower = place(figure, left=56, top=312, right=26, bottom=44)
    draw_reliability(upper, bins)
    lower.bar(
        [100 * one.low for one in bins], [one.count for one in bins], color=light("pale"), alpha=0.6, **_bars(bins)
    )
    for axes in (upper, lower):
        axes.set_xlim(0, 100)
        axes.grid(visible=True, axis="y")
        percent_axis(axes, "x", sign=True)
    percent_axis(upper, "y")
    upper.set_xticklabels([])
    most = max(one.count for one in bins)
    lower.set_ylim(0, 1.1 * most)
    lower.set_yticks([0, most])
    heading(upper, f"right answers in % (ECE {100 * ece:.1f} %)")
    heading(lower, "answers")
    lower.set_xlabel("probability of the best answer", labelpad=6)
    told = "; ".join(
        f"{100 * one.low:.0f} to {100 * one.high:.0f} %: {100 * one.accuracy:.1f} % of {one.count}" for one in bins
    )
    return Chart(
        figure,
        "Right answers by the probability of the best answer",
        f"{sum(one.count for one in bins)} questions, expected calibration error {100 * ece:.1f} %. {told}.",
    )


def draw_reliability(axes: Axes, bins: Sequence[ReliabilityBin]) -> None:
    """Draw a bar as high as the fraction that is right, with a dot at the mean probability of the bin, in per cent."""
    right = [100 * one.accuracy for one in bins]
    axes.plot([0, 100], [0, 100], color=light("pale"), linewidth=1.2, linestyle=(0, (4, 3)), zorder=3)
    axes.bar([100 * one.low for one in bins], right, color=light("first"), alpha=0.75, zorder=2, **_bars(bins))
    axes.plot(
        [100 * one.confidence for one in bins], right, linestyle="none", marker="o", markersize=6,
        color=light("second"), markeredgecolor=light("paper"), zorder=4, clip_on=False,
    )  # fmt: skip
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 101)


def _bars(bins: Sequence[ReliabilityBin]) -> dict[str, Any]:
    widths = [100 * (one.high - one.low) for one in bins]
    return {"width": widths, "align": "edge", "linewidth": 1, "edgecolor": light("paper")}


@chart_style()
def risk_coverage_chart(curves: Mapping[str, RiskCurve], *, chosen: float | None = None) -> Chart:
    """Draw how many answers are wrong if only the most confident are given, for up to four signals or LMs.

    `chosen` is a risk, from 0 to 1, at which a line is drawn.
    """
    figure = new_figure(460, 320)
    axes = place(figure, left=48, top=28, right=28, bottom=46)
    for number, label in enumerate(_distinct(curves)):
        curve = curves[label]
        coverages, risks = ([100 * share for share in shares] for shares in (curve.coverages, curve.risks))
        look = _curve(number, linewidth=1.8, label=f"{label} (area {100 * curve.area:.1f})")
        # In steps: answers with the same confidence are given together.
        axes.plot(coverages, risks, drawstyle="steps-post", clip_on=False, **look)
    highest = max(100 * max(curve.risks) for curve in curves.values())
    if chosen is not None:
        axes.axhline(100 * chosen, color=light("bad"), linewidth=1, linestyle=(0, (4, 3)))
        highest = max(highest, 100 * chosen)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, min(100, 1.08 * highest) or 1)
    percent_axis(axes, "x", sign=True)
    axes.grid(visible=True, axis="y")
    heading(axes, "wrong among the answers given, in %")
    axes.set_xlabel("coverage: questions answered, most confident first", labelpad=6)
    axes.legend(loc="best", frameon=False, handlelength=3.2, fontsize=11)
    told = "; ".join(
        f"{label}: area {100 * curve.area:.1f}, {100 * curve.risks[-1]:.1f} % wrong if all are answered"
        for label, curve in curves.items()
    )
    return Chart(figure, "Wrong answers against coverage, most confident answers first", f"{told}.")


def _curve(number: int, **more: Any) -> dict[str, Any]:
    """Return the colour and line of a curve, counted from 0, and more of its look."""
    return {"color": light(f"series-{number + 1}"), "linestyle": LINES[number], **more}


def _distinct(names: Collection[str]) -> Collection[str]:
    """Return the names of curves or marks, if they are few enough to be distinguished."""
    if len(names) > len(LINES):
        raise ValueError(f"{len(names)} of them cannot be distinguished: {', '.join(names)}")
    return names


# Plots on a notebook's own axes, which can be drawn on further.
Number = float | int
_LONGEST_LABEL = 48


def plot_curve(points: Sequence[tuple[Number, Number]], *, best: Number | None, label: str, axes: Any = None) -> Any:
    """Plot dev P@1 against pairs trained on; a dot marks the state that was kept."""
    axes = axes or _new_axes(5.5, 3.5)
    (line,) = axes.plot([x for x, _ in points], [y for _, y in points], marker=".", label=label)
    if best is not None:
        axes.plot([best], [dict(points)[best]], marker="o", markersize=8, color=line.get_color(), linestyle="none")
    axes.set_xlabel("(fact, prompt) pairs trained on")
    axes.set_ylabel("dev P@1 in per cent")
    axes.set_ylim(0, 101)
    axes.grid(visible=True, axis="y", alpha=0.3)
    return axes


def plot_weights(labels: Sequence[str], values: Sequence[float], *, title: str, axes: Any = None) -> Any:
    """Plot a bar for each prompt, the heaviest on top."""
    order = sorted(range(len(values)), key=lambda number: (-values[number], number))
    axes = axes or _new_axes(7, 0.6 + 0.32 * len(values))
    axes.barh(range(len(order)), [values[number] for number in order])
    axes.set_yticks(range(len(order)), [shortened(labels[number], _LONGEST_LABEL) for number in order])
    axes.invert_yaxis()
    axes.set_xlabel("weight")
    axes.set_title(title, loc="left", fontsize="medium")
    return axes


def plot_reliability(bins: Sequence[ReliabilityBin], *, ece: float, axes: Any = None) -> Any:
    """Plot the fraction of right answers by the probability of the best answer."""
    axes = axes or _new_axes(4, 4)
    draw_reliability(axes, bins)
    axes.set_xlabel("probability of the best answer in per cent")
    axes.set_ylabel("right answers in per cent")
    axes.set_title(f"expected calibration error {100 * ece:.1f} %", loc="left", fontsize="medium")
    return axes


def _new_axes(width: Number, height: Number) -> Any:
    from matplotlib import pyplot  # the notebook's own figures, so that it shows them

    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]
