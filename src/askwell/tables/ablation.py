"""The ablation: nothing tuned, weights alone, vectors alone, both."""

from collections.abc import Sequence

from askwell.report.table import MISSING, Cell, Column, ColumnGroup, Row, Table
from askwell.tables.captions import caption_of, groups_of, of_how_many
from askwell.tables.group import METRICS
from askwell.tables.kinds import INIT, SOFT, VECTORS, WEIGHTS
from askwell.tables.lines import Line
from askwell.tables.scores_table import PaperScore, no_paper, paper_row
from askwell.tables.study import StudyTable, file_name, score_record

_NAMES = {INIT: "baseline (init)", WEIGHTS: "weights only", VECTORS: "vectors only", SOFT: "both (soft)"}


def ablated(lines: Sequence[Line]) -> list[Line]:
    """The rows in which weights or vectors were tuned alone."""
    return [line for line in lines if WEIGHTS in line.groups or VECTORS in line.groups]


def ablation_table(lines: Sequence[Line], fact_set: str, paper: PaperScore = no_paper) -> StudyTable:
    """Four rows for each LM and source."""
    groups = groups_of(lines, _NAMES)
    rows, records = [], []
    for line in lines:
        for kind, name in _NAMES.items():
            group = line.groups.get(kind)
            note = "" if group is None else of_how_many(group, groups)
            theirs = [paper(line, kind, metric) for metric in METRICS]
            cells = tuple(MISSING if group is None else Cell(group.score(metric).text) for metric in METRICS)
            begins = f"{line.lm} · {line.label}" if kind == INIT else ""
            rows += [Row(name, cells, begins=begins, note=note), *paper_row(theirs)]
            records += [
                score_record(line, kind, metric, paper=of_paper)
                for metric, of_paper in zip(METRICS, theirs, strict=True)
            ]
    columns = (ColumnGroup("", tuple(Column(metric) for metric in METRICS)),)
    return StudyTable(
        file_name("ablation", fact_set),
        f"{fact_set}: ablation",
        Table(caption_of("Scores in per cent, by what was tuned.", groups), "tuned", columns, tuple(rows)),
        tuple(records),
    )
