"""Two shares in a row, and the gap between them: a dot for each, joined by a line."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from askwell.report.charts.drawn import chart_style, new_figure, place, svg_of
from askwell.report.palette import light

_WIDTH, _ROW, _LABELS = 460.0, 30.0, 176
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
        figure = new_figure(_WIDTH, 34 + _ROW * len(gaps))
        axes = place(figure, left=_LABELS, top=4, right=22, bottom=30)
        for row, gap in enumerate(gaps):
            _draw(axes, row, gap)
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
        return svg_of(figure, name, description or _described(gaps, first, second, measure))


def _draw(axes: Axes, row: int, gap: Gap) -> None:
    shares = [share for share in (gap.first, gap.second) if share is not None]
    if len(shares) == 2:
        axes.plot(shares, [row, row], color=light("pale"), linewidth=1.6, alpha=0.55, solid_capstyle="butt", zorder=2)
    first_is_right = gap.first is not None and (gap.second is None or gap.first >= gap.second)
    if gap.second is not None:
        axes.plot(
            [gap.second], [row], marker="D", markersize=7, markeredgewidth=1.8, linestyle="none", clip_on=False,
            markerfacecolor=light("paper"), markeredgecolor=light("second"), zorder=3,
        )  # fmt: skip
        _figure(axes, row, gap.second, "second", to_the_right=not first_is_right)
    if gap.first is not None:
        axes.plot(
            [gap.first], [row], marker="o", markersize=9, linestyle="none", color=light("first"), clip_on=False,
            markeredgewidth=0, zorder=4,
        )  # fmt: skip
        _figure(axes, row, gap.first, "first", to_the_right=first_is_right)


def _figure(axes: Axes, row: int, share: float, role: str, *, to_the_right: bool) -> None:
    axes.annotate(
        f"{share:.0f}", (share, row), xytext=(_ROOM_FOR_FIGURE if to_the_right else -_ROOM_FOR_FIGURE, 0),
        textcoords="offset points", ha="left" if to_the_right else "right", va="center_baseline", fontsize=11,
        color=light(role), annotation_clip=False,
    )  # fmt: skip


def _described(gaps: Sequence[Gap], first: str, second: str, measure: str) -> str:
    def told(share: float | None) -> str:
        return "none" if share is None else f"{share:.1f}"

    rows = "; ".join(f"{gap.label}: {told(gap.first)} and {told(gap.second)}" for gap in gaps)
    return f"{measure}, {first} and {second}. {rows}."
