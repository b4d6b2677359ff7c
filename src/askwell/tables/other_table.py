"""Kinds of runs that no other table shows, so that none is missing from a report."""

from collections.abc import Sequence

from askwell.report.table import Cell, Column, ColumnGroup, Row, Table
from askwell.tables.captions import caption_of
from askwell.tables.group import METRICS
from askwell.tables.kinds import ARROWS, VECTORS, WEIGHTS
from askwell.tables.lines import Line
from askwell.tables.study import StudyTable, file_name, score_record

_SHOWN = (*ARROWS, WEIGHTS, VECTORS)


def unusual(lines: Sequence[Line]) -> list[tuple[Line, str]]:
    """Rows and kinds that stand in no other table."""
    return [(line, kind) for line in lines for kind in sorted(line.groups) if kind not in _SHOWN]


def other_table(found: Sequence[tuple[Line, str]], fact_set: str) -> StudyTable:
    """Each of them in a row."""
    rows, records, seen = [], [], set()
    for line, kind in found:
        group = line.groups[kind]
        begins = "" if line.lm in seen else line.lm
        seen.add(line.lm)
        rows.append(
            Row(f"{line.label}: {kind}", tuple(Cell(group.score(metric).text) for metric in METRICS), begins=begins)
        )
        records += [score_record(line, kind, metric) for metric in METRICS]
    columns = (ColumnGroup("", tuple(Column(metric) for metric in METRICS)),)
    caption = caption_of("Scores in per cent.", [line.groups[kind] for line, kind in found])
    return StudyTable(
        file_name("other", fact_set),
        f"{fact_set}: other runs",
        Table(caption, "prompts: tuned", columns, tuple(rows)),
        tuple(records),
    )
