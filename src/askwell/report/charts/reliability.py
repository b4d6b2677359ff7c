"""The reliability diagram: of the answers given with some probability, how many are right?"""

from matplotlib.figure import Figure

from askwell.report.charts.drawn import chart_style, new_figure, place, svg_of
from askwell.report.charts.pdf import pdf_of
from askwell.report.palette import light
from askwell.trust.calibration import Calibration

_WIDTH, _HEIGHT = 380.0, 400.0


def reliability_chart(found: Calibration, name: str) -> str:
    """The diagram as SVG; `name` tells its parts from those of other charts of a page."""
    with chart_style():
        return svg_of(_figure(found), name, _described(found))


def reliability_pdf(found: Calibration) -> bytes:
    """The diagram as PDF."""
    with chart_style():
        return pdf_of(_figure(found))


def _figure(found: Calibration) -> Figure:
    """A bar a bin, as high as the share that is right, and a dot at its mean probability; below, how many they are."""
    figure = new_figure(_WIDTH, _HEIGHT)
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


def _described(found: Calibration) -> str:
    bins = "; ".join(
        f"{100 * one.low:.0f} to {100 * one.high:.0f} %: {100 * one.accuracy:.1f} % of {one.count}"
        for one in found.bins
    )
    return (
        f"Share of right answers by the probability of the best answer, {found.questions} questions, expected "
        f"calibration error {100 * found.ece:.1f} %. {bins}."
    )
