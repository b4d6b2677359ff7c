"""The charts of facts that changed: how many go from each state of one LM to each state of another, and what became of
them in parts of the facts. A colour stands for what became of a fact."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from askwell.views.drawing import Chart, chart_style, light, new_figure, percent_axis, place, text_width
from askwell.views.printable import shortened

_WIDTH, _HEIGHT = 480, 340
_GAP, _BAR = 0.05, 0.02
_BAND = 0.55
"""How opaque a band is."""
_LONGEST, _MARGIN = 34, 150
"""The longest name of an LM above a column of states, in letters; the room beside the columns, in pixels."""
Roles = Mapping[str, str]
"""By what became of a fact: the role in the palette that is its colour."""


@chart_style()
def flow_chart(
    flows: Mapping[str, Mapping[str, int]], became: Callable[[str, str], str], roles: Roles, *, left: str, right: str
) -> Chart:
    """Draw a band for each pair of states, as wide as the number of facts that go from one to the other, in the colour
    of what `became` of them."""
    states = list(flows)
    total = max(1, sum(count for row in flows.values() for count in row.values()))
    figure = new_figure(_WIDTH, _HEIGHT)
    axes = place(figure, left=_MARGIN, top=34, right=_MARGIN, bottom=44)
    axes.set_xlim(0, 1)
    axes.set_ylim(1 + _GAP * (len(states) - 1), 0)
    axes.set_axis_off()
    before = [sum(flows[state].values()) for state in states]
    after = [sum(flows[row][state] for row in states) for state in states]
    begins, ends = _tops(before, total), _tops(after, total)
    _draw_states(axes, dict(zip(states, before, strict=True)), begins, total, at_left=True)
    _draw_states(axes, dict(zip(states, after, strict=True)), ends, total, at_left=False)
    reached = list(ends)
    for row, begin in zip(states, begins, strict=True):
        start = begin
        for number, column in enumerate(states):
            width = flows[row][column] / total
            if width:
                axes.add_patch(_band(start, reached[number], width, light(roles[became(row, column)])))
            start, reached[number] = start + width, reached[number] + width
    _head(axes, left, at_left=True)
    _head(axes, right, at_left=False)
    found = {became(row, column) for row in states for column in states if flows[row][column]}
    _legend(figure, {name: role for name, role in roles.items() if name in found})
    told = "; ".join(f"{row} to {column}: {flows[row][column]}" for row in states for column in states)
    return Chart(figure, f"Facts from {left} to {right}", f"{told}.")


def _tops(counts: Sequence[int], total: int) -> list[float]:
    """Return where each state's bar begins, from above."""
    tops, at = [], 0.0
    for count in counts:
        tops.append(at)
        at += count / total + _GAP
    return tops


def _head(axes: Axes, text: str, *, at_left: bool) -> None:
    """Write what a column of states is above it: ending at its bars, or from the edge of the chart if it is longer."""
    shown, size, middle = shortened(text, _LONGEST), 12.0, _WIDTH - 2 * _MARGIN
    fits = text_width(shown, size) <= _MARGIN
    at = _BAR if fits else -_MARGIN / middle
    x, side = (at, "right" if fits else "left") if at_left else (1 - at, "left" if fits else "right")
    axes.text(x, -0.05, shown, ha=side, va="bottom", fontsize=size, color=light("ink"))


def _draw_states(axes: Axes, counts: Mapping[str, int], tops: Sequence[float], total: int, *, at_left: bool) -> None:
    x, side, bar = (-0.02, "right", 0.0) if at_left else (1.02, "left", 1.0 - _BAR)
    for (state, count), top in zip(counts.items(), tops, strict=True):
        axes.add_patch(Rectangle((bar, top), _BAR, count / total, color=light("pale"), linewidth=0))
        axes.text(x, top + count / total / 2, f"{state}: {count}", ha=side, va="center", fontsize=11)


def _band(start: float, end: float, width: float, colour: str) -> PathPatch:
    """Return a band from a place on the left to a place on the right, curved in between."""
    left, right = _BAR, 1 - _BAR
    points = [(left, start), (0.5, start), (0.5, end), (right, end)]
    back = [(right, end + width), (0.5, end + width), (0.5, start + width), (left, start + width)]
    codes = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3]
    return PathPatch(Path([*points, *back], codes), facecolor=colour, alpha=_BAND, linewidth=0)


def _legend(figure: Figure, roles: Roles) -> None:
    """Name the colours below the chart, in one line."""
    patches = [Rectangle((0, 0), 1, 1, color=light(role), alpha=_BAND, linewidth=0) for role in roles.values()]
    figure.legend(patches, list(roles), loc="lower center", ncols=max(1, len(roles)), frameon=False, handlelength=1.2)


@dataclass(frozen=True)
class PartRow:
    """A part of the facts and what became of it; `begins` is the heading of the rows that it is the first of."""

    label: str
    counts: Mapping[str, int]
    begins: str = ""


_ROW, _LABELS = 24, 190


@chart_style()
def parts_chart(rows: Sequence[PartRow], roles: Roles, *, measure: str) -> Chart:
    """Draw a bar for each part of the facts, 100 % long, with a stretch for each thing that became of its facts."""
    places, at = [], 0.0
    for row in rows:
        at += 0.4 + 1.0 if row.begins else 0.0
        places.append(at)
        at += 1.0
    figure = new_figure(_WIDTH, 84 + _ROW * at)
    axes = place(figure, left=_LABELS, top=6, right=24, bottom=76)
    for row, y in zip(rows, places, strict=True):
        if row.begins:
            axes.text(-2, y - 1.0, row.begins, ha="right", va="center", fontsize=11, fontweight="bold")
        axes.text(
            -2, y, f"{shortened(row.label, 26)} ({sum(row.counts.values())})", ha="right", va="center", fontsize=11
        )
        _draw_part(axes, row, y, roles)
    axes.set_xlim(0, 100)
    axes.set_ylim(at - 0.4, -0.4)
    axes.set_yticks([])
    percent_axis(axes, "x", sign=True)
    axes.set_xlabel(measure)
    for side in axes.spines.values():
        side.set_visible(False)
    _legend(figure, roles)
    told = "; ".join(f"{row.label}: {', '.join(f'{n} {what}' for what, n in row.counts.items())}" for row in rows)
    return Chart(figure, f"{measure}, by parts of the facts", f"{told}.")


def _draw_part(axes: Axes, row: PartRow, y: float, roles: Roles) -> None:
    total, left = max(1, sum(row.counts.values())), 0.0
    for name, role in roles.items():
        width = 100 * row.counts[name] / total
        if width:
            axes.add_patch(Rectangle((left, y - 0.36), width, 0.72, color=light(role), alpha=_BAND, linewidth=0))
        if width >= 8:
            axes.text(left + width / 2, y, str(row.counts[name]), ha="center", va="center", fontsize=10)
        left += width
