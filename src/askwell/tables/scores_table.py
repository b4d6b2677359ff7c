"""The main tables: init, soft and deep beside each other; and the full ones, with arrows, gains and bold figures."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from askwell.comparison.metric import Metric
from askwell.report.table import MISSING, Cell, Column, ColumnGroup, Row, Table
from askwell.tables.captions import caption_of, groups_of, of_how_many
from askwell.tables.group import METRICS, Average, RunGroup
from askwell.tables.kinds import ARROWS
from askwell.tables.lines import Line
from askwell.tables.significance import LINE, Step, step
from askwell.tables.study import Record, StudyTable, file_name, score_record

PaperScore = Callable[[Line, str, str], float | None]
"""The paper's figure of a row, a kind and a metric."""
_TESTED: tuple[Metric, ...] = ("P@1", "P@10", "MRR")


def no_paper(_line: Line, _kind: str, _metric: str) -> float | None:
    """No figure at all."""
    return None


def with_arrows(lines: Sequence[Line]) -> list[Line]:
    """The rows that have any of init, soft and deep."""
    return [line for line in lines if any(kind in line.groups for kind in ARROWS)]


def main_table(
    lines: Sequence[Line], fact_set: str, average: Average, paper: PaperScore = no_paper, *, name: str = "main"
) -> StudyTable:
    """Init, soft and deep by LM and source, each with P@1, P@10 and MRR."""
    groups = groups_of(lines, ARROWS)
    rows, records = [], []
    for line in lines:
        cells, of_paper = [], []
        for kind in ARROWS:
            group = line.groups.get(kind)
            note = "" if group is None else of_how_many(group, groups)
            for metric in METRICS:
                theirs = paper(line, kind, metric) if average == "micro" else None
                shown = (
                    Cell(group.score(metric, average).text, note=note if metric == "P@1" else "") if group else MISSING
                )
                cells.append(shown)
                of_paper.append(theirs)
                records.append(score_record(line, kind, metric, average, paper=theirs))
        rows += [Row(line.label, tuple(cells), begins=_begins(line, lines)), *paper_row(of_paper)]
    columns = tuple(ColumnGroup(kind, tuple(Column(metric) for metric in METRICS)) for kind in ARROWS)
    what = "Scores in per cent: prompts as they are (init), tuned at layer 0 (soft), tuned at all layers (deep)."
    suffix = () if average == "micro" else (average,)
    return StudyTable(
        file_name(name, fact_set, *suffix),
        f"{fact_set}: init, soft, deep ({average} average)",
        Table(caption_of(what, groups, average), "prompts", columns, tuple(rows)),
        tuple(records),
    )


def arrows_table(lines: Sequence[Line], fact_set: str, paper: PaperScore = no_paper) -> StudyTable:
    """Init → soft → deep by metric, with gains; the better of two neighbours is bold if it is so significantly."""
    groups = groups_of(lines, ARROWS)
    rows: list[Row] = []
    records: list[Record] = []
    for line in lines:
        cells: list[Cell] = []
        of_paper: list[float | None] = []
        for metric in _TESTED:
            steps = _steps(line, metric)
            bold = _bold(steps)
            for number, kind in enumerate(ARROWS):
                group, found = line.groups.get(kind), steps[number - 1] if number else None
                theirs = paper(line, kind, metric)
                follows = number > 0 and ARROWS[number - 1] in line.groups
                cells.append(_cell(group, metric, found, kind in bold, follows=follows))
                of_paper.append(theirs)
                gain, p = (None, None) if found is None else (found.gain, found.p)
                records.append(score_record(line, kind, metric, gain=gain, p=p, paper=theirs))
        rows += [Row(line.label, tuple(cells), begins=_begins(line, lines)), *paper_row(of_paper)]
    columns = tuple(ColumnGroup(metric, tuple(Column(kind) for kind in ARROWS)) for metric in METRICS)
    what = (
        "Scores in per cent; in brackets the gain over the column to the left, on the facts that both answered. Of two "
        f"neighbours the better one is bold if it is significantly better (p < {LINE}, two-sided paired permutation "
        "test over facts, all relations together; a fact's seeds stay together)."
    )
    return StudyTable(
        file_name("full", fact_set),
        f"{fact_set}: init → soft → deep",
        Table(caption_of(what, groups, spread=False), "prompts", columns, tuple(rows)),
        tuple(records),
    )


def paper_row(scores: Sequence[float | None], heading: str = "the paper") -> list[Row]:
    """A row of the paper's figures; none, if there is no figure."""
    if all(score is None for score in scores):
        return []
    cells = tuple(MISSING if score is None else Cell(f"{score:.1f}") for score in scores)
    return [Row(heading, cells, pale=True)]


def _begins(line: Line, lines: Sequence[Line]) -> str:
    """The LM, at the first of its rows."""
    first = next(other for other in lines if other.lm == line.lm)
    return line.lm if line is first else ""


def _steps(line: Line, metric: Metric) -> list[Step | None]:
    pairs = pairwise(ARROWS)
    return [
        step(line.groups[before], line.groups[after], metric)
        if before in line.groups and after in line.groups
        else None
        for before, after in pairs
    ]


def _bold(steps: Sequence[Step | None]) -> set[str]:
    """The kinds that are significantly better than a neighbour."""
    return {
        ARROWS[number + 1] if found.gain > 0 else ARROWS[number]
        for number, found in enumerate(steps)
        if found is not None and found.is_significant
    }


def _cell(group: RunGroup | None, metric: str, found: Step | None, bold: bool, *, follows: bool) -> Cell:
    if group is None:
        return MISSING
    gain = f" ({signed(found.gain)})" if found is not None else ""
    return Cell(f"{'→ ' if follows else ''}{group.score(metric).mean:.1f}{gain}", strong=bold)


def signed(gain: float) -> str:
    """A gain with its sign."""
    return f"{gain:+.1f}".replace("-", "−")
