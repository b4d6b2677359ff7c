"""The colours of a page and its charts, by role, for light and for dark paper.

A chart is drawn in the light colours; in a page each of them is the CSS variable of its role, so that the page's
own rules turn the charts dark with everything else.

From a matplotlib figure to SVG text that can stand in a page: no metadata, no fonts, no name used twice.

From a matplotlib figure to a PDF without dates, the same for the same figure.

Many learning curves: a small panel for each way of asking, with the same axes, a line for each kind of run.

Learning curves: a score and a loss against how much was trained on.

Two shares in a row, and the gap between them: a dot for each, joined by a line.

Scores with their intervals: a row for each way of asking, a mark for each kind of run in it.

The reliability diagram: of the answers given with some probability, how many are right?

Risk–coverage curves: how many answers are wrong if only the surest are given, for one or several signals.
"""

import io
import math
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from askwell.evaluation.abstention import RiskCoverage
from askwell.evaluation.calibration import Calibration


@dataclass(frozen=True)
class Colour:
    """A role's colour, as #rrggbb."""

    light: str
    dark: str


PALETTE = {
    "paper": Colour("#ffffff", "#0b0d10"),
    "panel": Colour("#f6f7f9", "#15181d"),
    "ink": Colour("#1f2328", "#e6edf3"),
    "pale": Colour("#5d656e", "#9aa4af"),
    "rule": Colour("#e3e6ea", "#2b3037"),
    "first": Colour("#1d5fd6", "#6ba2ff"),
    "second": Colour("#b25400", "#f2a04a"),
    "good": Colour("#12703b", "#56c98a"),
    "bad": Colour("#b3261e", "#ff8a80"),
    "series-1": Colour("#0b7a6b", "#45c4b1"),
    "series-2": Colour("#4b3fd1", "#a59cff"),
    "series-3": Colour("#b0206b", "#f77fbe"),
    "series-4": Colour("#7f6300", "#d9b84a"),
}


def light(role: str) -> str:
    """The colour in which a chart draws a role."""
    return PALETTE[role].light


def variable(role: str) -> str:
    """The role as a CSS value that falls back to the light colour where there is no page around."""
    return f"var(--{role}, {PALETTE[role].light})"


def css_variables(*, dark: bool) -> str:
    """The roles as CSS declarations."""
    return " ".join(f"--{role}: {colour.dark if dark else colour.light};" for role, colour in PALETTE.items())


_FONT_FAMILY = re.compile(r"font-family:[^;]*;?")
_PIXELS_AN_INCH = 72.0  # matplotlib's SVG counts in points
_STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 12.0,
    "axes.edgecolor": light("rule"),
    "axes.labelcolor": light("pale"),
    "axes.linewidth": 1.0,
    "text.color": light("ink"),
    "xtick.color": light("rule"),
    "ytick.color": light("rule"),
    "xtick.labelcolor": light("pale"),
    "ytick.labelcolor": light("pale"),
    "grid.color": light("rule"),
    "grid.linewidth": 1.0,
    "axes.axisbelow": True,
    "axes.grid": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@contextmanager
def chart_style() -> Generator[None]:
    """matplotlib's settings while a chart is drawn; whatever else uses matplotlib keeps its own."""
    with matplotlib.rc_context(_STYLE):
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many pixels. It is made without pyplot, which keeps every figure in memory."""
    return Figure(figsize=(width / _PIXELS_AN_INCH, height / _PIXELS_AN_INCH), dpi=_PIXELS_AN_INCH)


def place(figure: Figure, *, left: int, top: int, right: int, bottom: int) -> Axes:
    """Axes with so many pixels around them."""
    width, height = figure.get_size_inches() * _PIXELS_AN_INCH
    return figure.add_axes(
        (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
    )


def svg_of(figure: Figure, name: str, description: str) -> str:
    """The figure as SVG, the same for the same figure.

    `name` tells its parts from those of other charts of a page; `description` is for those who cannot see it.
    """
    written = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = ElementTree.fromstring(written.getvalue())
    for element in svg.iter():
        element.tag = element.tag.rpartition("}")[2]
    for parent in list(svg.iter()):
        for child in list(parent):
            if child.tag in ("metadata", "style"):
                parent.remove(child)
    for element in svg.iter():
        _free_of_matplotlib(element, name)
    svg.attrib = {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": svg.attrib["viewBox"],
        "role": "img",
        "class": "chart",
        "stroke-linejoin": "round",
        "font-family": "'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif",
    }
    title = Element("title")
    title.text = description
    svg.insert(0, title)
    return ElementTree.tostring(svg, encoding="unicode").strip() + "\n"


def _free_of_matplotlib(element: Element, name: str) -> None:
    """Takes the font, and names that nothing refers to, from an element, and makes colours those of the page."""
    link = element.attrib.pop("{http://www.w3.org/1999/xlink}href", None)
    if link is not None:
        element.set("href", f"#{name}-{link.removeprefix('#')}")
    if "id" in element.attrib:
        if element.tag in ("path", "clipPath"):
            element.set("id", f"{name}-{element.attrib['id']}")
        else:
            del element.attrib["id"]
    clip = element.attrib.get("clip-path")
    if clip is not None:
        element.set("clip-path", clip.replace("url(#", f"url(#{name}-"))
    style = element.attrib.get("style")
    if style is not None:
        element.set("style", _in_the_page_colours(_FONT_FAMILY.sub("", style)).strip())
    elif element.tag == "text":
        element.set("style", f"fill: {variable('ink')}")


def _in_the_page_colours(style: str) -> str:
    for role, colour in PALETTE.items():
        style = re.sub(rf"(fill|stroke): {colour.light}\b", rf"\1: {variable(role)}", style)
    return style


_NO_METADATA = {"Creator": None, "Producer": None, "CreationDate": None}


def pdf_of(figure: Figure) -> bytes:
    """The figure as PDF, with its letters as text that can be searched and copied."""
    written = io.BytesIO()
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        figure.savefig(written, format="pdf", metadata=_NO_METADATA)
    return written.getvalue()


_ACROSS = 3
_PANEL_WIDTH, _PANEL_HEIGHT, _PANEL_TOP = 300, 220, 34


@dataclass(frozen=True)
class Panel:
    """A panel with its lines, by kind: how much was trained on, and the score there."""

    heading: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


def panels_figure(panels: Sequence[Panel], kinds: Sequence[str], *, measure: str, trained: str) -> Figure:
    """The panels in rows of three, within matplotlib's settings of `chart_style`."""
    if len(kinds) > len(LINES):
        raise ValueError(f"{len(kinds)} kinds cannot be told apart")
    across, down = min(_ACROSS, max(1, len(panels))), math.ceil(len(panels) / _ACROSS)
    width, height = _PANEL_WIDTH * across, _PANEL_HEIGHT * down + _PANEL_TOP + 8
    figure = new_figure(float(width), float(height))
    furthest = max((x for panel in panels for line in panel.lines.values() for x, _ in line), default=1.0) or 1.0
    for number, panel in enumerate(panels):
        column, row = number % across, number // across
        axes = place(
            figure,
            left=column * _PANEL_WIDTH + 48,
            right=(across - column - 1) * _PANEL_WIDTH + 14,
            top=_PANEL_TOP + row * _PANEL_HEIGHT + 32,
            bottom=height - _PANEL_TOP - (row + 1) * _PANEL_HEIGHT + 44,
        )
        for kind, line in panel.lines.items():
            which = list(kinds).index(kind)
            axes.plot(
                [x for x, _ in line], [y for _, y in line], color=light(f"series-{which + 1}"), linestyle=LINES[which],
                marker=MARKERS[which], markersize=3.5, linewidth=1.6, clip_on=False,
            )  # fmt: skip
        axes.set_ylim(-3, 103)
        axes.set_yticks([0, 25, 50, 75, 100])
        axes.set_xlim(-0.02 * furthest, 1.03 * furthest)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.grid(visible=True, axis="y")
        axes.tick_params(length=0)
        axes.set_title(panel.heading, loc="left", fontsize=11, color=light("ink"), x=-0.12, pad=8)
        axes.set_xlabel(trained, labelpad=4)
        axes.set_ylabel(measure if column == 0 else "", labelpad=2)
    for which, kind in enumerate(kinds):
        figure.axes[0].plot(
            [], [], color=light(f"series-{which + 1}"), linestyle=LINES[which], marker=MARKERS[which], markersize=3.5,
            linewidth=1.6, label=kind,
        )  # fmt: skip
    figure.legend(loc="upper left", ncols=len(kinds), frameon=False, handlelength=3.2)
    return figure


_CURVE_WIDTH, _CURVE_HEIGHT = 460.0, 390.0
# So that curves can be told apart without their colours, too.
LINES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)))
MARKERS = ("o", "s", "^", "D")


@dataclass(frozen=True)
class CurvePoint:
    """How a run stood after so much training."""

    trained: int
    score: float
    loss: float | None
    """None if it was infinite: the point is then left out of the lower panel."""


@dataclass(frozen=True)
class Curve:
    """One run."""

    label: str
    points: tuple[CurvePoint, ...]
    kept: int
    """The number of the point whose state was kept; it is drawn full."""


def curves_chart(
    curves: Sequence[Curve], name: str, *, score: str, loss: str, trained: str, description: str | None = None
) -> str:
    """Up to four curves as SVG, the score in the upper panel, the loss in the lower, with a common axis below."""
    if len(curves) > len(LINES):
        raise ValueError(f"{len(curves)} curves cannot be told apart")
    with chart_style():
        figure = new_figure(_CURVE_WIDTH, _CURVE_HEIGHT)
        upper = place(figure, left=48, top=26, right=14, bottom=200)
        lower = place(figure, left=48, top=230, right=14, bottom=44)
        for number, curve in enumerate(curves):
            _draw_curves(upper, curve, number, [point.score for point in curve.points])
            _draw_curves(lower, curve, number, [point.loss for point in curve.points])
        upper.set_ylim(-3, 103)
        upper.set_yticks([0, 25, 50, 75, 100])
        losses = [point.loss for curve in curves for point in curve.points if point.loss is not None]
        lower.set_ylim(0, 1.05 * max(losses, default=1.0) or 1.0)
        lower.yaxis.set_major_locator(MaxNLocator(4))
        furthest = max((point.trained for curve in curves for point in curve.points), default=0) or 1
        for axes, title in ((upper, score), (lower, loss)):
            axes.set_xlim(-0.02 * furthest, 1.03 * furthest)
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.grid(visible=True, axis="y")
            axes.tick_params(length=0)
            axes.set_title(title, loc="left", fontsize=12, color=light("ink"), x=-0.09, pad=9)
        upper.set_xticklabels([])
        lower.set_xlabel(trained, labelpad=6)
        return svg_of(figure, name, description or _curves_described(curves, score, loss, trained))


def _draw_curves(axes: Axes, curve: Curve, number: int, heights: Sequence[float | None]) -> None:
    colour = light(f"series-{number + 1}")
    shown = [
        (point.trained, height, place == curve.kept)
        for place, (point, height) in enumerate(zip(curve.points, heights, strict=True))
        if height is not None
    ]
    across, up = [point[0] for point in shown], [point[1] for point in shown]
    axes.plot(across, up, color=colour, linestyle=LINES[number], linewidth=1.8, clip_on=False)
    kept = [(x, y) for x, y, is_kept in shown if is_kept]
    for x, y in kept:
        axes.plot([x], [y], marker=MARKERS[number], color=colour, markersize=6.5, linestyle="none", clip_on=False)


def _curves_described(curves: Sequence[Curve], score: str, loss: str, trained: str) -> str:
    told = []
    for curve in curves:
        first, kept = curve.points[0], curve.points[curve.kept]
        told.append(f"{curve.label}: {first.score:.1f} at first, {kept.score:.1f} after {kept.trained}")
    return f"{score} and {loss} against {trained}. {score}: {'; '.join(told)}."


_GAP_WIDTH, _GAP_ROW, _GAP_LABELS = 460.0, 30.0, 176
_ROOM_FOR_FIGURE = 10.0  # how far a figure stands from its dot, in per cent of the axis


@dataclass(frozen=True)
class Gap:
    """A row: two shares in per cent, either of which may be missing."""

    label: str
    first: float | None
    second: float | None
    aside: bool = False
    """Whether it only stands there to compare with: its label is then pale."""


def gaps_chart(
    gaps: Sequence[Gap], name: str, *, first: str, second: str, measure: str, description: str | None = None
) -> str:
    """The rows from top to bottom, as SVG: `first` is a full dot, `second` a hollow diamond."""
    with chart_style():
        figure = new_figure(_GAP_WIDTH, 34 + _GAP_ROW * len(gaps))
        axes = place(figure, left=_GAP_LABELS, top=4, right=22, bottom=30)
        for row, gap in enumerate(gaps):
            _draw_gaps(axes, row, gap)
        axes.set_xlim(-9, 109)
        axes.set_ylim(len(gaps) - 0.5, -0.5)
        axes.set_xticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100 %"])
        axes.set_yticks(range(len(gaps)), [gap.label for gap in gaps])
        for label, gap in zip(axes.get_yticklabels(), gaps, strict=True):
            label.set_color(light("pale" if gap.aside else "ink"))
        axes.grid(visible=True, axis="x")
        axes.tick_params(length=0, pad=6)
        for side in axes.spines.values():
            side.set_visible(False)
        return svg_of(figure, name, description or _gaps_described(gaps, first, second, measure))


def _draw_gaps(axes: Axes, row: int, gap: Gap) -> None:
    shares = [share for share in (gap.first, gap.second) if share is not None]
    if len(shares) == 2:
        axes.plot(shares, [row, row], color=light("pale"), linewidth=1.6, alpha=0.55, solid_capstyle="butt", zorder=2)
    first_is_right = gap.first is not None and (gap.second is None or gap.first >= gap.second)
    if gap.second is not None:
        axes.plot(
            [gap.second], [row], marker="D", markersize=7, markeredgewidth=1.8, linestyle="none", clip_on=False,
            markerfacecolor=light("paper"), markeredgecolor=light("second"), zorder=3,
        )  # fmt: skip
        _gaps_figure(axes, row, gap.second, "second", to_the_right=not first_is_right)
    if gap.first is not None:
        axes.plot(
            [gap.first], [row], marker="o", markersize=9, linestyle="none", color=light("first"), clip_on=False,
            markeredgewidth=0, zorder=4,
        )  # fmt: skip
        _gaps_figure(axes, row, gap.first, "first", to_the_right=first_is_right)


def _gaps_figure(axes: Axes, row: int, share: float, role: str, *, to_the_right: bool) -> None:
    axes.annotate(
        f"{share:.0f}", (share, row), xytext=(_ROOM_FOR_FIGURE if to_the_right else -_ROOM_FOR_FIGURE, 0),
        textcoords="offset points", ha="left" if to_the_right else "right", va="center_baseline", fontsize=11,
        color=light(role), annotation_clip=False,
    )  # fmt: skip


def _gaps_described(gaps: Sequence[Gap], first: str, second: str, measure: str) -> str:
    def told(share: float | None) -> str:
        return "none" if share is None else f"{share:.1f}"

    rows = "; ".join(f"{gap.label}: {told(gap.first)} and {told(gap.second)}" for gap in gaps)
    return f"{measure}, {first} and {second}. {rows}."


_INTERVAL_WIDTH, _INTERVAL_ROW, _INTERVAL_LABELS = 720.0, 36.0, 250
_STYLES = (("o", "pale", False), ("o", "first", True), ("D", "second", True), ("s", "series-1", True))
"""Marker, colour and whether it is filled, so that kinds can be told apart without their colours, too."""


@dataclass(frozen=True)
class Interval:
    """A score and its interval, in per cent."""

    score: float
    low: float
    high: float


@dataclass(frozen=True)
class IntervalRow:
    """A row; `begins` is the heading of the group of rows that it is the first of."""

    label: str
    marks: Mapping[str, Interval]
    """By kind."""
    begins: str = ""


def intervals_figure(rows: Sequence[IntervalRow], kinds: Sequence[str], *, measure: str) -> Figure:
    """The rows from top to bottom, within matplotlib's settings of `chart_style`."""
    if len(kinds) > len(_STYLES):
        raise ValueError(f"{len(kinds)} kinds cannot be told apart")
    places, labels = _places(rows)
    figure = new_figure(_INTERVAL_WIDTH, 86 + _INTERVAL_ROW * (places[-1] + 1 if places else 1))
    axes = place(figure, left=_INTERVAL_LABELS, top=40, right=30, bottom=46)
    for kind, style in zip(kinds, _STYLES, strict=False):
        axes.plot([], [], label=kind, linestyle="none", **_marker(style))
    for row, at in zip(rows, places, strict=True):
        _draw_intervals(axes, row, at, kinds)
    axes.set_xlim(-2, 102)
    axes.set_ylim((places[-1] if places else 0) + 0.6, min(labels, default=0) - 0.6)
    axes.set_xticks([0, 25, 50, 75, 100])
    axes.set_xlabel(measure)
    axes.set_yticks(list(labels), list(labels.values()))
    for label, at in zip(axes.get_yticklabels(), labels, strict=True):
        is_heading = at not in places
        label.set_color(light("ink"))
        label.set_fontweight("bold" if is_heading else "normal")
    axes.grid(visible=True, axis="x")
    axes.tick_params(length=0, pad=6)
    for side in axes.spines.values():
        side.set_visible(False)
    figure.legend(
        loc="upper left",
        ncols=len(kinds),
        frameon=False,
        bbox_to_anchor=(_INTERVAL_LABELS / _INTERVAL_WIDTH - 0.02, 1.0),
    )
    return figure


def described(rows: Sequence[IntervalRow], measure: str) -> str:
    """The figure in words, for those who cannot see it."""
    told = []
    for row in rows:
        marks = ", ".join(f"{kind} {mark.score:.1f}" for kind, mark in row.marks.items())
        told.append(f"{f'{row.begins}: ' if row.begins else ''}{row.label}: {marks or 'none'}")
    return f"{measure}. {'; '.join(told)}."


def _places(rows: Sequence[IntervalRow]) -> tuple[list[float], dict[float, str]]:
    """Where each row stands, and what is written at which height."""
    places: list[float] = []
    labels: dict[float, str] = {}
    at = 0.0
    for row in rows:
        if row.begins:
            labels[at] = row.begins
            at += 0.75
        places.append(at)
        labels[at] = row.label
        at += 1.0
    return places, labels


def _draw_intervals(axes: Axes, row: IntervalRow, at: float, kinds: Sequence[str]) -> None:
    for number, (kind, style) in enumerate(zip(kinds, _STYLES, strict=False)):
        mark = row.marks.get(kind)
        if mark is None:
            continue
        y = at + 0.22 * (number - (len(kinds) - 1) / 2)  # so that no interval hides another
        axes.plot([mark.low, mark.high], [y, y], color=light(style[1]), linewidth=1.6, solid_capstyle="butt", zorder=2)
        axes.plot([mark.score], [y], linestyle="none", clip_on=False, zorder=3, **_marker(style))


def _marker(style: tuple[str, str, bool]) -> dict[str, Any]:
    shape, role, filled = style
    return {
        "marker": shape,
        "markersize": 7.0 if shape == "o" else 6.0,
        "markeredgewidth": 1.6,
        "markeredgecolor": light(role),
        "markerfacecolor": light(role if filled else "paper"),
    }


_RELIABILITY_WIDTH, _RELIABILITY_HEIGHT = 380.0, 400.0


def reliability_chart(found: Calibration, name: str) -> str:
    """The diagram as SVG; `name` tells its parts from those of other charts of a page."""
    with chart_style():
        return svg_of(_reliability_figure(found), name, _reliability_described(found))


def reliability_pdf(found: Calibration) -> bytes:
    """The diagram as PDF."""
    with chart_style():
        return pdf_of(_reliability_figure(found))


def _reliability_figure(found: Calibration) -> Figure:
    """A bar a bin, as high as the share that is right, and a dot at its mean probability; below, how many they are."""
    figure = new_figure(_RELIABILITY_WIDTH, _RELIABILITY_HEIGHT)
    upper = place(figure, left=56, top=30, right=26, bottom=118)
    lower = place(figure, left=56, top=312, right=26, bottom=44)
    lefts = [100 * one.low for one in found.bins]
    widths = [100 * (one.high - one.low) for one in found.bins]
    upper.plot([0, 100], [0, 100], color=light("pale"), linewidth=1.2, linestyle=(0, (4, 3)), zorder=3)
    upper.bar(
        lefts, [100 * one.accuracy for one in found.bins], width=widths, align="edge", color=light("first"), alpha=0.75,
        edgecolor=light("paper"), linewidth=1, zorder=2,
    )  # fmt: skip
    upper.plot(
        [100 * one.confidence for one in found.bins], [100 * one.accuracy for one in found.bins], linestyle="none",
        marker="o", markersize=6, color=light("second"), markeredgecolor=light("paper"), zorder=4, clip_on=False,
    )  # fmt: skip
    lower.bar(
        lefts, [one.count for one in found.bins], width=widths, align="edge", color=light("pale"), alpha=0.6,
        edgecolor=light("paper"), linewidth=1,
    )  # fmt: skip
    for axes in (upper, lower):
        axes.set_xlim(0, 100)
        axes.tick_params(length=0)
        axes.grid(visible=True, axis="y")
    upper.set_ylim(0, 101)
    upper.set_yticks([0, 25, 50, 75, 100])
    upper.set_xticks([0, 25, 50, 75, 100], [])
    lower.set_xticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100 %"])
    most = max(one.count for one in found.bins)
    lower.set_ylim(0, 1.1 * most)
    lower.set_yticks([0, most])
    title = f"right answers in % (ECE {100 * found.ece:.1f} %)"
    upper.set_title(title, loc="left", fontsize=12, color=light("ink"), x=-0.14, pad=9)
    lower.set_title("answers", loc="left", fontsize=12, color=light("ink"), x=-0.14, pad=7)
    lower.set_xlabel("probability of the best answer", labelpad=6)
    return figure


def _reliability_described(found: Calibration) -> str:
    bins = "; ".join(
        f"{100 * one.low:.0f} to {100 * one.high:.0f} %: {100 * one.accuracy:.1f} % of {one.count}"
        for one in found.bins
    )
    return (
        f"Share of right answers by the probability of the best answer, {found.questions} questions, expected "
        f"calibration error {100 * found.ece:.1f} %. {bins}."
    )


_RISK_WIDTH, _RISK_HEIGHT = 460.0, 320.0


def risk_coverage_chart(curves: Mapping[str, RiskCoverage], name: str, *, chosen: float | None = None) -> str:
    """Up to four curves by their names, as SVG; `chosen` is a risk, from 0 to 1, at which a line is drawn."""
    with chart_style():
        return svg_of(_risk_coverage_figure(curves, chosen), name, _risk_coverage_described(curves))


def risk_coverage_pdf(curves: Mapping[str, RiskCoverage], *, chosen: float | None = None) -> bytes:
    """The same curves as PDF."""
    with chart_style():
        return pdf_of(_risk_coverage_figure(curves, chosen))


def _risk_coverage_figure(curves: Mapping[str, RiskCoverage], chosen: float | None) -> Figure:
    if len(curves) > len(LINES):
        raise ValueError(f"{len(curves)} curves cannot be told apart")
    figure = new_figure(_RISK_WIDTH, _RISK_HEIGHT)
    axes = place(figure, left=48, top=28, right=28, bottom=46)
    for number, (label, curve) in enumerate(curves.items()):
        # Between two thresholds nothing changes until the next group of answers is given as a whole.
        axes.plot(
            [100 * coverage for coverage in curve.coverages], [100 * risk for risk in curve.risks],
            color=light(f"series-{number + 1}"), linestyle=LINES[number],
            linewidth=1.8, label=f"{label} (area {100 * curve.area:.1f})", drawstyle="steps-post", clip_on=False,
        )  # fmt: skip
    highest = max(100 * max(curve.risks) for curve in curves.values())
    if chosen is not None:
        axes.axhline(100 * chosen, color=light("bad"), linewidth=1, linestyle=(0, (4, 3)))
        highest = max(highest, 100 * chosen)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, min(100, 1.08 * highest) or 1)
    axes.set_xticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100 %"])
    axes.grid(visible=True, axis="y")
    axes.tick_params(length=0)
    axes.set_title("wrong among the answers given, in %", loc="left", fontsize=12, color=light("ink"), x=-0.1, pad=9)
    axes.set_xlabel("questions answered, surest first", labelpad=6)
    axes.legend(loc="best", frameon=False, handlelength=3.2, fontsize=11)
    return figure


def _risk_coverage_described(curves: Mapping[str, RiskCoverage]) -> str:
    told = "; ".join(
        f"{label}: area {100 * curve.area:.1f}, {100 * curve.risks[-1]:.1f} % wrong if all are answered"
        for label, curve in curves.items()
    )
    return f"Share of wrong answers against the share of questions answered, surest first. {told}."
