"""Learning curves: a score and a loss against how much was trained on."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from askwell.report.charts.drawn import chart_style, new_figure, place, svg_of
from askwell.report.palette import light

_WIDTH, _HEIGHT = 460.0, 390.0
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
        figure = new_figure(_WIDTH, _HEIGHT)
        upper = place(figure, left=48, top=26, right=14, bottom=200)
        lower = place(figure, left=48, top=230, right=14, bottom=44)
        for number, curve in enumerate(curves):
            _draw(upper, curve, number, [point.score for point in curve.points])
            _draw(lower, curve, number, [point.loss for point in curve.points])
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
        return svg_of(figure, name, description or _described(curves, score, loss, trained))


def _draw(axes: Axes, curve: Curve, number: int, heights: Sequence[float | None]) -> None:
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


def _described(curves: Sequence[Curve], score: str, loss: str, trained: str) -> str:
    told = []
    for curve in curves:
        first, kept = curve.points[0], curve.points[curve.kept]
        told.append(f"{curve.label}: {first.score:.1f} at first, {kept.score:.1f} after {kept.trained}")
    return f"{score} and {loss} against {trained}. {score}: {'; '.join(told)}."
