"""Plots of plain numbers on matplotlib axes, which can be drawn on further: curves, weights, reliability."""

from collections.abc import Sequence
from typing import Any

Number = float | int
_LONGEST_LABEL = 48


def curve(points: Sequence[tuple[Number, Number]], *, best: Number | None, label: str, axes: Any = None) -> Any:
    """Plot dev P@1 against pairs trained on; a dot marks the state that was kept."""
    axes = axes or _new_axes(5.5, 3.5)
    xs, ys = [x for x, _ in points], [y for _, y in points]
    (line,) = axes.plot(xs, ys, marker=".", label=label)
    if best is not None:
        axes.plot([best], [dict(points)[best]], marker="o", markersize=8, color=line.get_color(), linestyle="none")
    axes.set_xlabel("(fact, prompt) pairs trained on")
    axes.set_ylabel("dev P@1 in per cent")
    axes.set_ylim(0, 101)
    axes.grid(visible=True, axis="y", alpha=0.3)
    return axes


def weights(labels: Sequence[str], values: Sequence[float], *, title: str, axes: Any = None) -> Any:
    """Return a bar for each prompt, the heaviest on top."""
    order = sorted(range(len(values)), key=lambda number: (-values[number], number))
    axes = axes or _new_axes(7, 0.6 + 0.32 * len(values))
    axes.barh(range(len(order)), [values[number] for number in order])
    axes.set_yticks(range(len(order)), [_shortened(labels[number]) for number in order])
    axes.invert_yaxis()
    axes.set_xlabel("weight")
    axes.set_title(title, loc="left", fontsize="medium")
    return axes


def reliability(bins: Sequence[tuple[float, float, int]], *, ece: float, axes: Any = None) -> Any:
    """Return a reliability diagram; each bin is its mean probability, the fraction of right answers, and its size."""
    axes = axes or _new_axes(4, 4)
    axes.plot([0, 1], [0, 1], linestyle="--", color="gray", linewidth=1)
    most = max(count for _, _, count in bins)
    axes.scatter([p for p, _, _ in bins], [right for _, right, _ in bins], s=[20 + 180 * n / most for *_, n in bins])
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("probability of the best answer")
    axes.set_ylabel("fraction of right answers")
    axes.set_title(f"expected calibration error {100 * ece:.1f} %", loc="left", fontsize="medium")
    return axes


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…"


def _new_axes(width: Number, height: Number) -> Any:
    from matplotlib import pyplot  # the notebook's own figures, so that it shows them

    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]
