"""Learning curves: dev P@1 against pairs, from the histories of runs."""

import json
from collections.abc import Sequence

import numpy as np

from askwell.errors import DamagedFile
from askwell.report.charts.drawn import chart_style, svg_of
from askwell.report.charts.panels import Panel, panels_figure
from askwell.report.charts.pdf import pdf_of
from askwell.store.folder import HISTORY
from askwell.tables.figure import StudyFigure
from askwell.tables.group import RunGroup
from askwell.tables.kept import KeptRun
from askwell.tables.kinds import DEEP, SOFT, VECTORS, WEIGHTS
from askwell.tables.lines import Line
from askwell.tables.study import file_name

_KINDS = (SOFT, DEEP, WEIGHTS, VECTORS)
_MEASURE, _TRAINED = "dev P@1 in per cent", "(fact, prompt) pairs trained on"
Curve = list[tuple[float, float]]


def curve_figure(lines: Sequence[Line], fact_set: str) -> StudyFigure | None:
    """A panel for each LM and source; None if no run has a history."""
    panels = []
    for line in lines:
        curves = {kind: curve for kind in _KINDS if kind in line.groups and (curve := mean_curve(line.groups[kind]))}
        if curves:
            panels.append(Panel(f"{line.lm} · {line.label}", curves))
    if not panels:
        return None
    kinds = [kind for kind in _KINDS if any(kind in panel.lines for panel in panels)]
    name = file_name("curves", fact_set)
    told = "; ".join(
        f"{panel.heading}, {kind}: {curve[0][1]:.1f} at first, {curve[-1][1]:.1f} at the end"
        for panel in panels
        for kind, curve in panel.lines.items()
    )
    with chart_style():
        figure = panels_figure(panels, kinds, measure=_MEASURE, trained=_TRAINED)
        svg, pdf = svg_of(figure, name, f"{_MEASURE} against {_TRAINED}. {told}."), pdf_of(figure)
    caption = (
        "Dev P@1 while the prompts were tuned: the mean over relations and seeds, each counted alike. A run that ended "
        "earlier than others of its line goes on with its last score. A point is where some run of the line was scored."
    )
    return StudyFigure(name, f"{fact_set}: learning curves", caption, svg, pdf)


def mean_curve(group: RunGroup) -> Curve:
    """The mean of the runs' dev P@1 wherever one of them was scored, straight lines between a run's own scores."""
    curves = [curve for run in group.runs if (curve := _history(run))]
    places = sorted({pairs for curve in curves for pairs, _ in curve})
    heights = [np.interp(places, [pairs for pairs, _ in curve], [score for _, score in curve]) for curve in curves]
    return [(float(x), float(y)) for x, y in zip(places, np.mean(heights, axis=0), strict=True)] if curves else []


def _history(run: KeptRun) -> Curve:
    path = run.folder / HISTORY
    try:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [(float(record["pairs"]), float(record["dev"]["P@1"])) for record in records]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{path} is damaged ({error}); remove {path.parent}") from error
