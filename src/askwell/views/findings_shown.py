"""What was found as blocks of a document: sentences, a chart of told and withheld facts, a table by relation, some
answers."""

import re
from collections.abc import Sequence

from askwell.data.facts import Fact
from askwell.data.testbed import PREFIXES, told_facts
from askwell.evaluation.metrics import units_of
from askwell.evaluation.outcomes import Outcome
from askwell.views.charts import Gap, gaps_chart
from askwell.views.document import (
    MISSING,
    Block,
    Cell,
    Column,
    ColumnGroup,
    Figure,
    Key,
    Points,
    Row,
    Section,
    Table,
    headed,
)
from askwell.views.findings import FoundCell, LMFindings
from askwell.views.printable import per_cent
from askwell.views.study_figures import StudyFigure
from askwell.views.study_rows import TEXTS, file_stem, ranked_among
from askwell.views.trust_figures import TOLD, WITHHELD

_MOST_RELATIONS, _MOST_CELLS, _QUESTIONS, _LONGEST_LABEL = 8, 24, 5, 27


def headlines(findings: Sequence[LMFindings]) -> Points:
    """Return the most important sentence on each LM."""
    return Points(tuple(said[0] for found in findings if (said := found.sentences())))


def details(findings: Sequence[LMFindings]) -> list[Points]:
    """Return the other sentences on each LM."""
    return [
        Points(tuple(said), found.lm if len(findings) > 1 else "")
        for found in findings
        if (said := found.sentences()[1:])
    ]


def found_blocks(findings: Sequence[LMFindings], figures: Sequence[Figure]) -> list[Block]:
    """Return what was found: in a sentence, in a chart, in further sentences and in a table."""
    return [headlines(findings), *figures[:1], *details(findings), *relation_tables(findings), *figures[1:]]


TOLD_KEYS = (Key("told in the text", "first", "dot"), Key("withheld from it", "second", "diamond"))


def told_figures(fact_set: str, findings: Sequence[LMFindings]) -> list[StudyFigure]:
    """Return a chart for each LM of which it is known which facts it was told."""
    figures = []
    for found in findings:
        gaps = [
            Gap(_shortened(cell.label), shares[0], shares[1])
            for cell in found.cells
            if len(shares := cell.shares()) == 2
        ]
        if not gaps:
            continue
        if (of_control := found.most_frequent()) is not None and len(of_control) == 2:
            gaps.append(Gap("most frequent answer", of_control[0], of_control[1], aside=True))
        chart = gaps_chart(gaps[:_MOST_CELLS], first="told", second="withheld", measure=f"P@1 {units_of(['P@1'])}")
        figures.append(StudyFigure(file_stem("told", fact_set, found.lm), found.lm, (TEXTS["told"]["what"],), chart))
    return figures


def _shortened(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…"


def relation_tables(findings: Sequence[LMFindings]) -> list[Table]:
    """Return P@1 of every cell by relation, on told and withheld facts where that is known; nothing if it would have
    too many relations, or say no more than the scores of the set."""
    cells = [(found, cell) for found in findings for cell in found.cells]
    relations = sorted({relation for _, cell in cells for relation in cell.group.relations})
    parts = max((len(cell.shares()) for _, cell in cells), default=1)
    if len(relations) > _MOST_RELATIONS or len(relations) * parts < 2:
        return []
    shown: list[str | None] = [*relations, *([None] if len(relations) > 1 else [])]
    groups = [
        ColumnGroup(_bare(relation) if relation else "all", _part_columns(cells, relation, parts)) for relation in shown
    ]
    rows = []
    for found, begins in headed(findings, lambda found: found.lm):
        best = _best_columns(found, shown, parts)
        for number, cell in enumerate(found.cells):
            figures = [share for relation in shown for share in _shares_of(cell, relation, parts)]
            texts = tuple(
                MISSING if figure is None else Cell(f"{figure:.1f}", strong=figure == top)
                for figure, top in zip(figures, best, strict=True)
            )
            rows.append(Row(cell.label, texts, "" if number else begins))
        if found.most_frequent() is not None:
            controls = [share for relation in shown for share in found.most_frequent(relation) or [None] * parts]
            texts = tuple(MISSING if share is None else Cell(f"{share:.1f}") for share in controls)
            rows.append(Row("most frequent answer of train", texts, note="no LM at all", pale=True))
    runs = (run for _, cell in cells for run in cell.group.runs)
    caption = f"{TEXTS['by_relation']['what']} {TEXTS['told']['parts'] if parts == 2 else ''}"
    return [Table(f"{caption.strip()} {ranked_among(runs)}", "prompts", tuple(groups), tuple(rows))]


def _part_columns(
    cells: Sequence[tuple[LMFindings, FoundCell]], relation: str | None, parts: int
) -> tuple[Column, ...]:
    if parts == 1:
        return (Column("P@1"),)
    columns = []
    for part in (TOLD, WITHHELD):
        counts = {
            sum(relation in (None, outcome.relation) for outcome in cell.parts.get(part, ())) // len(cell.group.seeds)
            for _, cell in cells
            if cell.parts and cell.group.seeds
        }
        columns.append(Column(part, f"of {counts.pop()}" if len(counts) == 1 else "", pale=part == WITHHELD))
    return tuple(columns)


def _shares_of(cell: FoundCell, relation: str | None, parts: int) -> list[float | None]:
    if relation is not None and relation not in cell.group.relations:
        return [None] * parts
    shares = cell.shares(relation)
    return shares if len(shares) == parts else [None] * parts


def _best_columns(found: LMFindings, shown: Sequence[str | None], parts: int) -> list[float | None]:
    """The best figure of each column; that of withheld facts, which can only be guessed, is of no merit."""
    best: list[float | None] = []
    for relation in shown:
        of_cells = [_shares_of(cell, relation, parts) for cell in found.cells]
        told_ones = [shares[0] for shares in of_cells if shares[0] is not None]
        best += [max(told_ones, default=None), *[None] * (parts - 1)]
    return best


def some_answers(findings: Sequence[LMFindings]) -> list[Section]:
    """Return what the best untuned and the best tuned prompts of an LM answer to some test facts."""
    sections = []
    for found in findings:
        untuned, tuned = found.best_untuned, found.best_tuned
        cells = [cell for cell in (untuned, tuned) if cell is not None and cell.has_outcomes]
        if not cells or len(cells[-1].group.relations) > _MOST_RELATIONS:
            continue
        is_testbed = all(relation.startswith(PREFIXES) for relation in cells[-1].group.relations)
        rows = [row for relation in cells[-1].group.relations for row in _answer_rows(cells, relation, is_testbed)]
        names = ("right answer", *(["in the text"] if is_testbed else []), *(cell.label for cell in cells))
        columns = tuple(Column(name, number=False) for name in names)
        table = Table(TEXTS["answers"]["what"], "x", (ColumnGroup("", columns),), tuple(rows))
        where = f" of {found.lm}" if len(findings) > 1 else ""
        sections.append(Section(f"Some answers{where}", (table,)))
    return sections


def _answer_rows(cells: Sequence[FoundCell], relation: str, is_testbed: bool) -> list[Row]:
    answers = [
        {outcome.x: outcome for run in cell.group.among([relation]).firsts for outcome in run.test} for cell in cells
    ]
    xs = [x for x in answers[-1] if all(x in of_cell for of_cell in answers)]
    rows = []
    for number, x in enumerate(xs[:: max(1, len(xs) // _QUESTIONS)][:_QUESTIONS]):
        golds = answers[-1][x].golds
        shown = [Cell(", ".join(golds))]
        if is_testbed:
            known = [Fact(x, gold) in told_facts(relation) for gold in golds]
            shown.append(Cell(TOLD if all(known) else WITHHELD if not any(known) else "in part"))
        rows.append(Row(x, (*shown, *(_answer(of_cell[x]) for of_cell in answers)), "" if number else _bare(relation)))
    return rows


def _answer(outcome: Outcome) -> Cell:
    if not outcome.answers:
        return MISSING
    mark = "right" if outcome.answers[0] in outcome.golds else "wrong"
    return Cell(outcome.answers[0], mark=mark, note=per_cent(outcome.probabilities[0]))


def _bare(relation: str) -> str:
    """The name of a relation without its set."""
    return re.split(r"[:/]", relation, maxsplit=1)[-1]
