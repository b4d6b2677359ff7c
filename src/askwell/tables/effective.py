"""The effective number of prompts: 2^H of a tuned mixture's weights, over relations."""

from collections.abc import Sequence
from statistics import fmean, stdev

from askwell.report.table import MISSING, Cell, Column, ColumnGroup, Row, Table
from askwell.tables.captions import caption_of, groups_of
from askwell.tables.group import RunGroup
from askwell.tables.kinds import DEEP, SOFT, WEIGHTS
from askwell.tables.lines import Line
from askwell.tables.paper import Paper
from askwell.tables.study import StudyTable, file_name, record

_KINDS = (SOFT, DEEP, WEIGHTS)
_FIGURES = ("mean", "std", "min", "max")


def with_several_prompts(lines: Sequence[Line]) -> list[Line]:
    """The rows in which weights of several prompts were tuned."""
    return [
        line
        for line in lines
        if any(run.metrics["prompts"] > 1 for group in groups_of([line], _KINDS) for run in group.runs)
    ]


def effective_table(lines: Sequence[Line], fact_set: str, paper: Paper | None = None) -> StudyTable:
    """Mean, standard deviation, least and most over relations, by LM, source and what was tuned."""
    groups, rows, records = [], [], []
    for line in lines:
        begins = line.lm if line is next(other for other in lines if other.lm == line.lm) else ""
        for kind in (kind for kind in _KINDS if kind in line.groups):
            group = line.groups[kind]
            groups.append(group)
            figures = _figures(group)
            theirs = {
                name: paper.effective_prompts(line, name) if paper is not None and kind == SOFT else None
                for name in _FIGURES
            }
            prompts = fmean(run.metrics["prompts"] for run in group.runs)
            cells = [Cell(f"{prompts:.1f}"), *(_cell(figures[name]) for name in _FIGURES)]
            rows.append(Row(f"{line.label}, {kind}", tuple(cells), begins=begins))
            begins = ""
            if any(figure is not None for figure in theirs.values()):
                of_paper = tuple(_cell(theirs[name]) for name in _FIGURES)
                rows.append(Row("the paper", (MISSING, *of_paper), note="its LM is not said", pale=True))
            records.append(record(line, kind, "prompts", prompts))
            records += [record(line, kind, name, figures[name], paper=theirs[name]) for name in _FIGURES]
    columns = (
        ColumnGroup("", (Column("prompts", "mean"),)),
        ColumnGroup("effective prompts", tuple(Column(name) for name in _FIGURES)),
    )
    what = (
        "The effective number of prompts is 2^H, H the entropy of the mixture's weights in bits; mean, standard "
        "deviation, least and most over relations, of each the mean over its seeds."
    )
    return StudyTable(
        file_name("effective_prompts", fact_set),
        f"{fact_set}: effective number of prompts",
        Table(caption_of(what, groups, None, spread=False), "prompts, tuned", columns, tuple(rows)),
        tuple(records),
    )


def _figures(group: RunGroup) -> dict[str, float | None]:
    numbers = [fmean(run.metrics["effective_prompts"] for run in runs.values()) for runs in group.by_relation.values()]
    return {
        "mean": fmean(numbers),
        "std": stdev(numbers) if len(numbers) > 1 else None,
        "min": min(numbers),
        "max": max(numbers),
    }


def _cell(figure: float | None) -> Cell:
    return MISSING if figure is None else Cell(f"{figure:.1f}")
