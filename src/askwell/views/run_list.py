"""Several runs beside each other, as the page and `askwell runs` list them: a table, gains, learning curves."""

from collections.abc import Mapping, Sequence
from typing import Any

from askwell.data.testbed import PREFIX
from askwell.evaluation.metrics import METRICS
from askwell.runs.folder import Run
from askwell.views.charts import Gap, Panel, gaps_chart, panels_chart
from askwell.views.document import Cell, Column, ColumnGroup, Drawing, Figure, Row, Table
from askwell.views.printable import NONE, signed

_NUMBERS = {*METRICS, *(metric.key for metric in METRICS.values()), "seed", "facts"}
_CURVES, _GAINS = 6, 40


def run_table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], title: str = "", links: Sequence[str] = ()
) -> Table:
    """Return a row for each run, as a query found them; the first column is their heading, which may be a link."""
    first, *others = columns
    shown = tuple(
        Row(_text(first, row[first]), tuple(Cell(_text(name, row[name])) for name in others), link=link)
        for row, link in zip(rows, links or [""] * len(rows), strict=True)
    )
    groups = (ColumnGroup("", tuple(Column(name, number=name in _NUMBERS) for name in others)),)
    return Table("", first, groups, shown, title)


def _text(name: str, value: object) -> str:
    if value is None:
        return NONE
    if isinstance(value, float):
        decimals = {metric.key: metric.decimals for metric in METRICS.values()}
        return f"{value:.{decimals.get(name, 1)}f}"
    return str(value)[:8] if name == "id" else str(value)


def gains_figure(runs: Sequence[Run]) -> Figure | None:
    """Return P@1 before and after tuning, by relation and LM; None if no run was scored before it."""
    by_label: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        before = None if run.record.untuned is None else run.record.untuned.score("P@1")
        after = run.score("P@1")
        if before is not None and after is not None:
            relation, lm = (name.removeprefix(PREFIX) for name in (run.record.spec.relation, run.record.spec.lm))
            by_label.setdefault(f"{relation[:16]} · {lm[:8]}", []).append((after, before))
    if not by_label:
        return None
    best = {label: max(pairs) for label, pairs in by_label.items()}
    gaps = [Gap(label, after, before) for label, (after, before) in sorted(best.items())][:_GAINS]
    better = sum(after > before for after, before in best.values())
    mean = sum(after - before for after, before in best.values()) / len(best)
    caption = (
        f"Full dots: right answers in % after tuning; hollow diamonds: with the same prompts before it. Tuning helps "
        f"in {better} of {len(best)} cases, by {signed(mean)} points on average (of several runs, the best is shown)."
    )
    chart = gaps_chart(gaps, first="tuned", second="hard prompts", measure="P@1 on test facts")
    return Figure((Drawing("gains", chart),), caption)


def curves_figure(runs: Mapping[str, Run]) -> Figure | None:
    """Return dev P@1 while tuning, of the first few runs; None if there is no curve."""
    curves = {name: points for name, run in runs.items() if len(points := run.record.learning_curve) > 1}
    if not curves:
        return None
    panels = [
        Panel(name if len(name) <= 30 else f"{name[:29]}…", {"dev P@1": points}) for name, points in curves.items()
    ][:_CURVES]
    more = f" The first {_CURVES} of {len(curves)} runs." if len(curves) > _CURVES else ""
    caption = f"Right answers to dev facts in % during tuning: where a curve is flat, nothing more is learned.{more}"
    drawings = tuple(
        Drawing(f"curve-{number}", panels_chart([one], ["dev P@1"], measure="dev P@1, %", trained="pairs trained on"))
        for number, one in enumerate(panels)
    )
    return Figure(drawings, caption)
