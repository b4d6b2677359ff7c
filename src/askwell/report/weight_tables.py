"""Tables of the prompts' weights: the effective number of prompts, and static against data-dependent weights."""

from collections.abc import Sequence
from statistics import fmean, stdev

from askwell.evaluation.metrics import TABLE_METRICS
from askwell.report.cells import DATA_DEPENDENT, DEEP, SOFT, WEIGHTS, RunGroup, place_of
from askwell.report.page import MISSING, Cell, Column, ColumnGroup, Row, Table
from askwell.report.paper import Paper
from askwell.report.rows import Line, StudyTable, caption_of, file_name, groups_of, headed, record, score_record

_KINDS = (SOFT, DEEP, WEIGHTS)
_FIGURES = ("mean", "std", "min", "max")


def with_several_prompts(lines: Sequence[Line]) -> list[Line]:
    """The rows in which the weights of several prompts were tuned."""
    return [line for line in lines if any(run.prompts > 1 for group in groups_of([line], _KINDS) for run in group.runs)]


def effective_table(lines: Sequence[Line], fact_set: str, paper: Paper | None = None) -> StudyTable:
    """Mean, standard deviation, minimum and maximum over relations, by LM, source and what was tuned."""
    groups, rows, records = [], [], []
    for line, begins in headed(lines, lambda line: line.lm):
        for kind in (kind for kind in _KINDS if kind in line.groups):
            group = line.groups[kind]
            groups.append(group)
            figures = _effective_prompts(group)
            theirs = {
                name: paper.effective_prompts(line, name) if paper is not None and kind == SOFT else None
                for name in _FIGURES
            }
            prompts = fmean(run.prompts for run in group.runs)
            cells = [Cell(f"{prompts:.1f}"), *(_cell(figures[name]) for name in _FIGURES)]
            is_first = kind == next(known for known in _KINDS if known in line.groups)
            rows.append(Row(f"{line.label}, {kind}", tuple(cells), begins=begins if is_first else ""))
            if any(figure is not None for figure in theirs.values()):
                of_paper = tuple(_cell(theirs[name]) for name in _FIGURES)
                rows.append(Row("the paper", (MISSING, *of_paper), note="its LM is not stated", pale=True))
            records.append(record(line, kind, "prompts", prompts))
            records += [record(line, kind, name, figures[name], paper=theirs[name]) for name in _FIGURES]
    columns = (
        ColumnGroup("", (Column("prompts", "mean"),)),
        ColumnGroup("effective prompts", tuple(Column(name) for name in _FIGURES)),
    )
    what = (
        "The effective number of prompts is 2^H, where H is the entropy of the mixture's weights in bits; mean, "
        "standard deviation, minimum and maximum are over relations, each averaged over its seeds."
    )
    return StudyTable(
        file_name("effective_prompts", fact_set),
        f"{fact_set}: effective number of prompts",
        Table(caption_of(what, groups, None, spread=False), "prompts, tuned", columns, tuple(rows)),
        tuple(records),
    )


def _effective_prompts(group: RunGroup) -> dict[str, float | None]:
    numbers = [fmean(run.effective_prompts for run in runs.values()) for runs in group.by_relation.values()]
    return {
        "mean": fmean(numbers),
        "std": stdev(numbers) if len(numbers) > 1 else None,
        "min": min(numbers),
        "max": max(numbers),
    }


def _cell(figure: float | None) -> Cell:
    return MISSING if figure is None else Cell(f"{figure:.1f}")


_STATIC = "static"


def dependent(lines: Sequence[Line]) -> list[Line]:
    """The rows whose weights depend on x."""
    return [line for line in lines if DATA_DEPENDENT in line.extras]


def dependence_table(lines: Sequence[Line], fact_set: str) -> StudyTable:
    """For each kind of run with data-dependent weights, with the same kind of run with static ones above it."""
    groups, rows, records = [], [], []
    for line in dependent(lines):
        static = _static(line, lines)
        for kind, own in sorted(line.groups.items(), key=lambda item: place_of(item[0])):
            name = ", ".join([line.source, *(extra for extra in line.extras if extra != DATA_DEPENDENT), kind])
            begins = f"{line.lm} · {name}"
            beside = None if static is None else static.groups.get(kind)
            for label, of, group in ((_STATIC, static or line, beside), (DATA_DEPENDENT, line, own)):
                figures = _temperature_and_entropy(group) if group is not None else (None, None)
                cells = [
                    *(MISSING if group is None else Cell(group.score(metric).text) for metric in TABLE_METRICS),
                    *(MISSING if figure is None else Cell(f"{figure:.2f}") for figure in figures),
                ]
                rows.append(Row(label, tuple(cells), begins=begins))
                begins = ""
                if group is None:
                    continue
                groups.append(group)
                records += [score_record(of, kind, metric) for metric in TABLE_METRICS]
                records += [
                    record(of, kind, figure, value) for figure, value in zip(("T", "entropy"), figures, strict=True)
                ]
    columns = (
        ColumnGroup("", tuple(Column(metric) for metric in TABLE_METRICS)),
        ColumnGroup("weights", (Column("T", "mean"), Column("entropy", "bits, mean over x"))),
    )
    what = (
        "Scores in per cent with weights p(t | r), and with weights p(t | r, x) that also depend on how probable a "
        "prompt finds x. T is the learned temperature; the entropy is that of the weights; both are means over "
        "relations and seeds."
    )
    return StudyTable(
        file_name("data_dependent", fact_set),
        f"{fact_set}: static against data-dependent weights",
        Table(caption_of(what, groups), "weights", columns, tuple(rows)),
        tuple(records),
    )


def _static(line: Line, lines: Sequence[Line]) -> Line | None:
    """The row that is the same except for its static weights."""
    extras = tuple(extra for extra in line.extras if extra != DATA_DEPENDENT)
    same = [
        other
        for other in lines
        if (other.lm, other.source, other.extras) == (line.lm, line.source, extras) and other.apart == line.apart
    ]
    return same[0] if same else None


def _temperature_and_entropy(group: RunGroup) -> tuple[float | None, float | None]:
    """The mean temperature, which static weights do not have, and the mean entropy of the weights."""
    temperatures = [run.temperature for run in group.runs if run.temperature is not None]
    entropies = [run.entropy for run in group.runs if run.entropy is not None]
    return fmean(temperatures) if temperatures else None, fmean(entropies) if entropies else None
