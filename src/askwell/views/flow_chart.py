"""The flow chart of facts: how many go from each state of one LM to each state of another."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from askwell.views.drawing import Chart, chart_style, light, new_figure, place

_WIDTH, _HEIGHT = 640, 320
_GAP, _BAR = 0.04, 0.025
_ROLES = ("first", "second", "pale")


@chart_style()
def flow_chart(flows: Mapping[str, Mapping[str, int]], *, left: str, right: str) -> Chart:
    """Draw a band for each pair of up to three states, as wide as the number of facts that go from one to the other."""
    states = list(flows)
    total = max(1, sum(count for row in flows.values() for count in row.values()))
    figure = new_figure(_WIDTH, _HEIGHT)
    axes = place(figure, left=130, top=34, right=130, bottom=10)
    axes.set_xlim(0, 1)
    axes.set_ylim(1 + _GAP * (len(states) - 1), 0)
    axes.set_axis_off()
    before = [sum(flows[state].values()) for state in states]
    after = [sum(flows[row][state] for row in states) for state in states]
    tops = {"before": _tops(before, total), "after": _tops(after, total)}
    for side, counts, at in (("before", before, 0.0), ("after", after, 1.0 - _BAR)):
        for state, count, top, role in zip(states, counts, tops[side], _ROLES, strict=False):
            axes.add_patch(Rectangle((at, top), _BAR, count / total, color=light(role), linewidth=0))
            x, side_of_text = (-0.02, "right") if side == "before" else (1.02, "left")
            y = top + count / total / 2
            axes.text(x, y, f"{state}: {count}", ha=side_of_text, va="center", fontsize=11)
    ends = list(tops["after"])
    for row, role, top in zip(states, _ROLES, tops["before"], strict=False):
        start = top
        for number, column in enumerate(states):
            width = flows[row][column] / total
            if width:
                axes.add_patch(_band(start, ends[number], width, light(role)))
            start, ends[number] = start + width, ends[number] + width
    for text, at, side in ((left, 0.0, "left"), (right, 1.0, "right")):
        axes.text(at, -0.05, text, ha=side, va="bottom", fontsize=12, color=light("ink"))
    told = "; ".join(f"{row} to {column}: {flows[row][column]}" for row in states for column in states)
    return Chart(figure, f"Facts from {left} to {right}", f"{told}.")


def _tops(counts: Sequence[int], total: int) -> list[float]:
    """Return where each state's bar begins, from above."""
    tops, at = [], 0.0
    for count in counts:
        tops.append(at)
        at += count / total + _GAP
    return tops


def _band(start: float, end: float, width: float, colour: str) -> PathPatch:
    """Return a band from a place on the left to a place on the right, curved in between."""
    left, right = _BAR, 1 - _BAR
    points = [(left, start), (0.5, start), (0.5, end), (right, end)]
    back = [(right, end + width), (0.5, end + width), (0.5, start + width), (left, start + width)]
    codes = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3]
    return PathPatch(Path([*points, *back], codes), facecolor=colour, alpha=0.45, linewidth=0)
