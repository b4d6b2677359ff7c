"""The section "Can I believe this?": the figures as tables, charts, and plain sentences on what they mean."""

from collections.abc import Sequence

from askwell.evaluation.partitions import HARD
from askwell.evaluation.significance import interval_text
from askwell.views.charts import reliability_chart, risk_coverage_chart
from askwell.views.document import MISSING, Cell, Column, ColumnGroup, Row, headed, one_decimal
from askwell.views.study_figures import StudyFigure, figure_of_set
from askwell.views.study_rows import TEXTS, Draft, StudyTable, file_stem, ranked_among, record, span
from askwell.views.to_html import sentences
from askwell.views.trust_figures import CellTrust

_CURVES = 4


def trust_table(cells: Sequence[CellTrust], fact_set: str) -> StudyTable:
    """One row per tuned cell."""
    draft = Draft()
    for cell, begins in headed(cells, lambda cell: cell.line.lm):
        figures = _figures(cell)
        draft.records += [record(cell.line, cell.kind, name, value) for name, value in figures.items()]
        control = score = gain = MISSING
        if cell.knowledge is not None:
            found = cell.knowledge.gain
            control, score = Cell(found.control), one_decimal(found.control_score)
            interval = interval_text(found.low, found.high, "{:.1f}".format)
            gain = Cell(f"{found.gain:+.1f}", strong=cell.knowledge.is_there, note=interval)
        others = [one_decimal(figures[name]) for name in list(figures)[5:]]
        row = (Cell(cell.score.text), control, score, gain, *others)
        draft.rows.append(Row(f"{cell.line.label}, {cell.kind}", row, begins))
    columns = tuple(Column(heading, note) for heading, note in TEXTS["believe"]["columns"].items())
    return draft.finished("believe", fact_set, [ColumnGroup("", columns)], _caption("believe", cells))


def _caption(name: str, cells: Sequence[CellTrust]) -> str:
    facts, left_out = span([cell.group.facts for cell in cells]), span([cell.group.left_out for cell in cells])
    what = TEXTS[name]["what"].format(facts=facts, left_out=left_out)
    return f"{what} {ranked_among(run for cell in cells for run in cell.group.runs)}"


def _figures(cell: CellTrust) -> dict[str, float | None]:
    """The figures of a row; the first five are shown together with what they belong to."""
    gain = None if cell.knowledge is None else cell.knowledge.gain
    questions, answered, wrong = cell.answered or (0, 0, 0)
    hard = cell.parts.get("control", {}).get(HARD)
    return {
        "P@1": cell.score.mean,
        "P@1 of the best control": None if gain is None else gain.control_score,
        "gain over the best control": None if gain is None else gain.gain,
        "gain, low": None if gain is None else gain.low,
        "gain, high": None if gain is None else gain.high,
        "P@1 where no control is right": None if hard is None else hard["P@1"],
        "P@1 corrected by the prior": cell.corrected,
        "expected calibration error": 100 * cell.calibration.ece,
        "answered at 10 % risk": 100 * answered / questions if questions else None,
        "wrong of the answers at 10 % risk": 100 * wrong / answered if answered else None,
        "prompts agree": None if cell.agreement is None else 100 * cell.agreement,
        "P@1 of the nearest words": cell.projected,
    }


def sentences_of(cell: CellTrust) -> list[str]:
    """What the figures say, for readers who are not statisticians."""
    return sentences("trust.txt.jinja", cell=cell)


def trust_figures(cells: Sequence[CellTrust], fact_set: str) -> list[StudyFigure]:
    """The reliability diagram of each LM's first cell, and the risk–coverage curves of these cells together."""
    firsts = [cell for cell, lm in headed(cells, lambda cell: cell.line.lm) if lm][:_CURVES]
    title, what = TEXTS["reliability"]["title"], TEXTS["reliability"]["what"]
    figures = [
        StudyFigure(
            file_stem("reliability", fact_set, cell.line.lm),
            title.format(cell=cell.label),
            what.format(cell=cell.label, questions=cell.calibration.questions, ece=100 * cell.calibration.ece),
            reliability_chart(cell.calibration.bins, ece=cell.calibration.ece),
        )
        for cell in firsts
    ]
    areas = "; ".join(f"{cell.label}: area {100 * cell.risk_coverage.area:.1f}" for cell in firsts)
    caption = TEXTS["risk_coverage"]["what"].format(areas=areas)
    chart = risk_coverage_chart({cell.line.lm: cell.risk_coverage for cell in firsts}, chosen=0.1)
    return [*figures, figure_of_set("risk_coverage", fact_set, caption, chart)]


def parts_table(cells: Sequence[CellTrust], fact_set: str) -> StudyTable:
    """What is easy and what is hard: P@1 on parts of the facts, with their numbers; trivial partitions are omitted."""
    groups: list[ColumnGroup] = []
    rows: list[list[Cell]] = [[] for _ in cells]
    for partition, heading in TEXTS["parts"]["columns"].items():
        of_cells = [cell.parts.get(partition, {}) for cell in cells]
        # In the order of the cell that has most of them.
        parts = dict.fromkeys(part for of_cell in sorted(of_cells, key=len, reverse=True) for part in of_cell)
        if len(parts) < 2:
            continue
        columns = []
        for part in parts:
            counts = {of_cell[part]["facts"] for of_cell in of_cells if part in of_cell}
            columns.append(Column(part, f"{counts.pop()} facts" if len(counts) == 1 else ""))
            for row, of_cell in zip(rows, of_cells, strict=True):
                row.append(_part_cell(of_cell.get(part), with_facts=not columns[-1].note))
        groups.append(ColumnGroup(heading, tuple(columns)))
    draft = Draft()
    for (cell, begins), row in zip(headed(cells, lambda cell: cell.line.lm), rows, strict=True):
        draft.rows.append(Row(f"{cell.line.label}, {cell.kind}", tuple(row), begins))
        draft.records += [
            record(cell.line, cell.kind, f"P@1, {partition}: {part}", scores["P@1"])
            for partition in TEXTS["parts"]["columns"]
            for part, scores in cell.parts.get(partition, {}).items()
        ]
    return draft.finished("parts", fact_set, groups, _caption("parts", cells))


def _part_cell(scores: dict[str, int | float] | None, *, with_facts: bool) -> Cell:
    if scores is None:
        return MISSING
    return Cell(f"{scores['P@1']:.1f}", note=f"{scores['facts']}" if with_facts else "")
