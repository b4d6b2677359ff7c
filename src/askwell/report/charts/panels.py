"""Many learning curves: a small panel for each way of asking, with the same axes, a line for each kind of run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from askwell.report.charts.curves import LINES, MARKERS
from askwell.report.charts.drawn import new_figure, place
from askwell.report.palette import light

_ACROSS = 3
_WIDTH, _HEIGHT, _TOP = 300, 220, 34


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
    width, height = _WIDTH * across, _HEIGHT * down + _TOP + 8
    figure = new_figure(float(width), float(height))
    furthest = max((x for panel in panels for line in panel.lines.values() for x, _ in line), default=1.0) or 1.0
    for number, panel in enumerate(panels):
        column, row = number % across, number // across
        axes = place(
            figure,
            left=column * _WIDTH + 48,
            right=(across - column - 1) * _WIDTH + 14,
            top=_TOP + row * _HEIGHT + 32,
            bottom=height - _TOP - (row + 1) * _HEIGHT + 44,
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
