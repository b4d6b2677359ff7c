"""Static against data-dependent weights."""

import math
from collections.abc import Sequence
from statistics import fmean

from askwell.report.table import MISSING, Cell, Column, ColumnGroup, Row, Table
from askwell.tables.captions import caption_of
from askwell.tables.group import METRICS, RunGroup
from askwell.tables.kinds import DATA_DEPENDENT, place_of
from askwell.tables.lines import Line
from askwell.tables.study import StudyTable, file_name, record, score_record

_STATIC = "static"


def dependent(lines: Sequence[Line]) -> list[Line]:
    """The rows whose weights depend on x."""
    return [line for line in lines if DATA_DEPENDENT in line.extras]


def dependence_table(lines: Sequence[Line], fact_set: str) -> StudyTable:
    """For each kind of run with data-dependent weights, the same with static ones above it."""
    groups, rows, records = [], [], []
    for line in dependent(lines):
        static = _static(line, lines)
        for kind, own in sorted(line.groups.items(), key=lambda item: place_of(item[0])):
            name = ", ".join([line.source, *(extra for extra in line.extras if extra != DATA_DEPENDENT), kind])
            begins = f"{line.lm} · {name}"
            beside = None if static is None else static.groups.get(kind)
            for label, of, group in ((_STATIC, static or line, beside), (DATA_DEPENDENT, line, own)):
                figures = _figures(group) if group is not None else (None, None)
                cells = [
                    *(MISSING if group is None else Cell(group.score(metric).text) for metric in METRICS),
                    *(MISSING if figure is None else Cell(f"{figure:.2f}") for figure in figures),
                ]
                rows.append(Row(label, tuple(cells), begins=begins))
                begins = ""
                if group is None:
                    continue
                groups.append(group)
                records += [score_record(of, kind, metric) for metric in METRICS]
                records += [
                    record(of, kind, figure, value) for figure, value in zip(("T", "entropy"), figures, strict=True)
                ]
    columns = (
        ColumnGroup("", tuple(Column(metric) for metric in METRICS)),
        ColumnGroup("weights", (Column("T", "mean"), Column("entropy", "bits, mean over x"))),
    )
    what = (
        "Scores in per cent with weights p(t | r), and with weights p(t | r, x) that also follow how probable a prompt "
        "finds x. T is the learned temperature, the entropy that of the weights; both are means over relations and "
        "seeds."
    )
    return StudyTable(
        file_name("data_dependent", fact_set),
        f"{fact_set}: static against data-dependent weights",
        Table(caption_of(what, groups), "weights", columns, tuple(rows)),
        tuple(records),
    )


def _static(line: Line, lines: Sequence[Line]) -> Line | None:
    """The row that is the same but for its static weights."""
    extras = tuple(extra for extra in line.extras if extra != DATA_DEPENDENT)
    same = [
        other
        for other in lines
        if (other.lm, other.source, other.extras) == (line.lm, line.source, extras) and other.apart == line.apart
    ]
    return same[0] if same else None


def _figures(group: RunGroup) -> tuple[float | None, float | None]:
    """The mean temperature, which static weights have not, and the mean entropy of the weights."""
    temperatures = [run.metrics["temperature"] for run in group.runs]
    entropies = [
        math.log2(run.metrics["effective_prompts"]) if over_x is None else over_x
        for run in group.runs
        if (over_x := run.metrics["mean_entropy_over_x"]) is not None or run.metrics["temperature"] is None
    ]
    known = [temperature for temperature in temperatures if temperature is not None]
    return fmean(known) if known else None, fmean(entropies) if entropies else None
