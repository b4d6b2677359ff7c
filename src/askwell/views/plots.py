"""Plots of plain numbers on a notebook's own axes, which can be drawn on further: curves, weights, reliability."""

from collections.abc import Sequence
from typing import Any

from askwell.views.charts import ReliabilityBin, draw_reliability

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
    texts = (labels[number] for number in order)
    shown = [text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…" for text in texts]
    axes.set_yticks(range(len(order)), shown)
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
