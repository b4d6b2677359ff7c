"""Risk–coverage curves: how many answers are wrong if only the surest are given, for one or several signals."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from askwell.report.charts.curves import LINES
from askwell.report.charts.drawn import chart_style, new_figure, place, svg_of
from askwell.report.charts.pdf import pdf_of
from askwell.report.palette import light
from askwell.trust.abstention import RiskCoverage

_WIDTH, _HEIGHT = 460.0, 320.0


def risk_coverage_chart(curves: Mapping[str, RiskCoverage], name: str, *, chosen: float | None = None) -> str:
    """Up to four curves by their names, as SVG; `chosen` is a risk, from 0 to 1, at which a line is drawn."""
    with chart_style():
        return svg_of(_figure(curves, chosen), name, _described(curves))


def risk_coverage_pdf(curves: Mapping[str, RiskCoverage], *, chosen: float | None = None) -> bytes:
    """The same curves as PDF."""
    with chart_style():
        return pdf_of(_figure(curves, chosen))


def _figure(curves: Mapping[str, RiskCoverage], chosen: float | None) -> Figure:
    if len(curves) > len(LINES):
        raise ValueError(f"{len(curves)} curves cannot be told apart")
    figure = new_figure(_WIDTH, _HEIGHT)
    axes = place(figure, left=48, top=28, right=28, bottom=46)
    for number, (label, curve) in enumerate(curves.items()):
        # Between two thresholds nothing changes until the next group of answers is given as a whole.
        axes.plot(
            100 * curve.coverages, 100 * curve.risks, color=light(f"series-{number + 1}"), linestyle=LINES[number],
            linewidth=1.8, label=f"{label} (area {100 * curve.area:.1f})", drawstyle="steps-post", clip_on=False,
        )  # fmt: skip
    highest = max(100 * float(curve.risks.max()) for curve in curves.values())
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


def _described(curves: Mapping[str, RiskCoverage]) -> str:
    told = "; ".join(
        f"{label}: area {100 * curve.area:.1f}, {100 * float(curve.risks[-1]):.1f} % wrong if all are answered"
        for label, curve in curves.items()
    )
    return f"Share of wrong answers against the share of questions answered, surest first. {told}."
