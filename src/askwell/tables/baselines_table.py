"""Prompts that were not tuned, under the names by which they are known."""

from collections.abc import Sequence

from askwell.report.table import Cell, Column, ColumnGroup, Row, Table
from askwell.tables.captions import caption_of, of_how_many
from askwell.tables.group import METRICS, RunGroup
from askwell.tables.kinds import INIT, PRODUCT, PUBLISHED, WEIGHTS
from askwell.tables.lines import Line
from askwell.tables.paper import paper_source
from askwell.tables.scores_table import PaperScore, no_paper, paper_row
from askwell.tables.study import StudyTable, file_name, score_record


def baselines(lines: Sequence[Line]) -> list[tuple[Line, str]]:
    """The rows, each with the kind, that keep their prompts as they are: untuned ones, and products of experts."""
    return [
        (line, kind)
        for line in lines
        for kind in (INIT, WEIGHTS)
        if kind in line.groups and _is_baseline(line, kind, lines)
    ]


def baselines_table(found: Sequence[tuple[Line, str]], fact_set: str, paper: PaperScore = no_paper) -> StudyTable:
    """Each baseline's P@1, P@10 and MRR, by LM."""
    groups = [line.groups[kind] for line, kind in found]
    rows, records, seen = [], [], set()
    for line, kind in found:
        group = line.groups[kind]
        theirs = [paper(line, kind, metric) for metric in METRICS]
        name = baseline_name(line, kind, group)
        begins, cells = "" if line.lm in seen else line.lm, tuple(Cell(group.score(metric).text) for metric in METRICS)
        seen.add(line.lm)
        rows += [Row(name, cells, begins=begins, note=of_how_many(group, groups)), *paper_row(theirs)]
        records += [
            {**score_record(line, kind, metric, paper=of_paper), "kind": name}
            for metric, of_paper in zip(METRICS, theirs, strict=True)
        ]
    columns = (ColumnGroup("", tuple(Column(metric) for metric in METRICS)),)
    what = "Scores in per cent of prompts as they stand."
    return StudyTable(
        file_name("baselines", fact_set),
        f"{fact_set}: baselines",
        Table(caption_of(what, groups), "baseline", columns, tuple(rows)),
        tuple(records),
    )


def baseline_name(line: Line, kind: str, group: RunGroup) -> str:
    """LAMA, LPAQA, or in words what the prompts are."""
    known = paper_source(line.source)
    if known == "soft-ran":
        return f"random vectors, untuned: {line.label}"
    if known == "soft-sin" and all(len(run.spec.templates) == 1 for run in group.runs) and line.is_plain:
        return f"LAMA: {line.label}"
    ensemble = "learned product" if kind == WEIGHTS else "product" if PRODUCT in line.extras else "mixture"
    weights = "" if kind == WEIGHTS else ", published weights" if PUBLISHED in line.extras else ", uniform"
    apart = f" [{line.apart}]" if line.apart else ""
    project = "LPAQA" if known in ("soft-min", "soft-par") else "hard prompts"
    return f"{project}: {line.source}, {ensemble}{weights}{apart}"


def _is_baseline(line: Line, kind: str, lines: Sequence[Line]) -> bool:
    if kind == WEIGHTS:
        return PRODUCT in line.extras
    # Several rows can show the untuned prompts that all of them started from.
    return line is next(other for other in lines if other.groups.get(INIT) and _same(other, line))


def _same(one: Line, other: Line) -> bool:
    return one.groups[INIT].ids == other.groups[INIT].ids
