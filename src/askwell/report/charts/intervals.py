"""Scores with their intervals: a row for each way of asking, a mark for each kind of run in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from askwell.report.charts.drawn import new_figure, place
from askwell.report.palette import light

_WIDTH, _ROW, _LABELS = 720.0, 36.0, 250
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
    figure = new_figure(_WIDTH, 86 + _ROW * (places[-1] + 1 if places else 1))
    axes = place(figure, left=_LABELS, top=40, right=30, bottom=46)
    for kind, style in zip(kinds, _STYLES, strict=False):
        axes.plot([], [], label=kind, linestyle="none", **_marker(style))
    for row, at in zip(rows, places, strict=True):
        _draw(axes, row, at, kinds)
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
    figure.legend(loc="upper left", ncols=len(kinds), frameon=False, bbox_to_anchor=(_LABELS / _WIDTH - 0.02, 1.0))
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


def _draw(axes: Axes, row: IntervalRow, at: float, kinds: Sequence[str]) -> None:
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
