"""A table of a report with a name, and its figures as plain records for machines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from askwell.report.table import Table
from askwell.tables.group import Average
from askwell.tables.lines import Line

FIELDS = (
    "facts", "lm", "prompts", "kind", "figure", "average", "value", "deviation", "seeds", "relations", "test_facts",
    "left_out", "gain", "p", "paper",
)  # fmt: skip
"""The columns of a table as CSV: a row for each figure."""

Record = Mapping[str, Any]


@dataclass(frozen=True)
class StudyTable:
    """A table, what it is called in file names and in headings, and what it says in plain figures."""

    name: str
    title: str
    table: Table
    records: tuple[Record, ...]

    def as_json(self) -> dict[str, Any]:
        """Its figures, with what they are figures of."""
        return {"title": self.title, "caption": self.table.caption, "figures": [dict(r) for r in self.records]}


def record(line: Line, kind: str, figure: str, value: float | None, *, paper: float | None = None) -> Record:
    """A figure of a cell with all that it is a figure of; None where there is none."""
    group = line.groups.get(kind)
    found = dict.fromkeys(FIELDS) | {
        "facts": line.fact_set, "lm": line.lm, "prompts": line.label, "kind": kind, "figure": figure, "value": value,
        "paper": paper,
    }  # fmt: skip
    if group is None:
        return found
    return found | {
        "seeds": len(group.seeds), "relations": len(group.relations), "test_facts": group.facts,
        "left_out": group.left_out,
    }  # fmt: skip


def score_record(
    line: Line,
    kind: str,
    metric: str,
    average: Average = "micro",
    *,
    gain: float | None = None,
    p: float | None = None,
    paper: float | None = None,
) -> Record:
    """A score of a cell; `gain` and `p` are those over the cell before it."""
    group = line.groups.get(kind)
    score = None if group is None else group.score(metric, average)
    found = record(line, kind, metric, None if score is None else score.mean, paper=paper)
    deviation = None if score is None else score.deviation
    return {**found, "average": average, "deviation": deviation, "gain": gain, "p": p}


def file_name(*parts: str) -> str:
    """Parts as a name that any file system takes."""
    return "-".join("".join(char if char.isalnum() or char in "_." else "-" for char in part) for part in parts)
