"""The table of scores in parts: what is easy and what is hard, and where a score comes from."""

from collections.abc import Sequence

from askwell.report.table import MISSING, Cell, Column, ColumnGroup, Row, Table
from askwell.tables.belief import Belief
from askwell.tables.study import StudyTable, file_name, record

# By what facts are told apart, with a heading for the table, in its order.
_PARTITIONS = {
    "control": "by controls",
    "told": "in the LM's text",
    "seen y": "y in train",
    "y in x": "y inside x",
    "cardinality": "kind of relation",
    "frequency of y": "times that y stands in train",
    "length of x": "words of x",
}


def parts_table(beliefs: Sequence[Belief]) -> Table:
    """A row for each tuned cell, P@1 of each part with its number of facts; partitions of one part are left out."""
    groups, columns = [], []
    for partition, heading in _PARTITIONS.items():
        parts = _parts(beliefs, partition)
        if len(parts) > 1:
            groups.append(ColumnGroup(heading, tuple(_column(beliefs, partition, part) for part in parts)))
            columns += [(partition, part) for part in parts]
    rows, seen = [], set()
    for belief in beliefs:
        begins = "" if belief.line.lm in seen else belief.line.lm
        seen.add(belief.line.lm)
        rows.append(
            Row(
                f"{belief.line.label}, {belief.kind}",
                tuple(_cell(belief, beliefs, *at) for at in columns),
                begins=begins,
            )
        )
    words = "; ".join(sorted({vocabulary for belief in beliefs for vocabulary in belief.vocabularies}))
    return Table(
        caption=(
            "P@1 in parts of the test facts, in per cent, means over facts (micro), with the number of facts: of a "
            "column, where it is the same in all rows, else beside each score. Easy is what some control gets right. "
            f"Vocabulary: {words}."
        ),
        corner="prompts",
        groups=tuple(groups),
        rows=tuple(rows),
    )


def parts_study_table(beliefs: Sequence[Belief], fact_set: str) -> StudyTable:
    """The table with its figures as plain records."""
    records = [
        record(belief.line, belief.kind, f"P@1, {partition}: {part}", scores["P@1"])
        for belief in beliefs
        for partition in _PARTITIONS
        for part, scores in belief.parts.get(partition, {}).items()
    ]
    return StudyTable(
        file_name("parts", fact_set), f"{fact_set}: scores in parts", parts_table(beliefs), tuple(records)
    )


def _parts(beliefs: Sequence[Belief], partition: str) -> list[str]:
    """The parts of a partition that some cell has, in the order of the first that has most of them."""
    of_cells = sorted((list(belief.parts.get(partition, {})) for belief in beliefs), key=len, reverse=True)
    return list(dict.fromkeys(part for parts in of_cells for part in parts))


def _common_count(beliefs: Sequence[Belief], partition: str, part: str) -> str:
    """How many facts the part has, if that is the same in all rows that have it."""
    parts = [belief.parts.get(partition, {}).get(part) for belief in beliefs]
    counts = {f"{scores['facts']:.0f}" for scores in parts if scores is not None}
    return counts.pop() if len(counts) == 1 else ""


def _column(beliefs: Sequence[Belief], partition: str, part: str) -> Column:
    count = _common_count(beliefs, partition, part)
    return Column(part, f"{count} facts" if count else "")


def _cell(belief: Belief, beliefs: Sequence[Belief], partition: str, part: str) -> Cell:
    scores = belief.parts.get(partition, {}).get(part)
    if scores is None:
        return MISSING
    is_common = bool(_common_count(beliefs, partition, part))
    return Cell(f"{scores['P@1']:.1f}", note="" if is_common else f"{scores['facts']:.0f}")
