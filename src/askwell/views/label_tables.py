"""Tables of labels, for runs that choose among a few: precision, recall and F1, and what each is confused with."""

from collections.abc import Sequence

from askwell.evaluation.labels import LabelFigures, added
from askwell.views.document import MISSING, Cell, Column, ColumnGroup, Row, headed, one_decimal
from askwell.views.study_cells import RunGroup, place_of
from askwell.views.study_rows import Draft, Line, ScoredCell, StudyTable, caption_of, file_stem, record

_IN_COLUMNS = 10
"""Up to this many labels, each has a column of the confusion table; beyond, only the most frequent errors are named."""
_SCORES = ("facts", "precision", "recall", "F1")


def label_tables(lines: Sequence[Line], fact_set: str) -> list[StudyTable]:
    """A table for each relation and set of labels, with a row for each label of every run."""
    cells: dict[tuple[str, tuple[str, ...]], list[tuple[Line, str, LabelFigures]]] = {}
    for line in lines:
        for kind in sorted(line.groups, key=place_of):
            for relation, runs in line.groups[kind].by_relation.items():
                found = added([run.record.test.labels for run in runs.values()])
                if found is not None:
                    cells.setdefault((relation, found.labels), []).append((line, kind, found))
    files = [file_stem("labels", relation) for relation, _ in cells]
    tables = []
    for number, ((relation, labels), of_labels) in enumerate(cells.items()):
        again = files[:number].count(files[number])
        file = f"{files[number]}-{again + 1}" if again else files[number]
        tables.append(_table(of_labels, fact_set, relation, labels, file))
    return tables


def _table(
    cells: Sequence[tuple[Line, str, LabelFigures]], fact_set: str, relation: str, labels: Sequence[str], file: str
) -> StudyTable:
    draft, groups = Draft(), []
    for line, kind, found in cells:
        groups.append(RunGroup(tuple(line.groups[kind].by_relation[relation].values())))
        for label, begins in headed(labels, lambda _, line=line, kind=kind: f"{line.lm} · {line.label}, {kind}"):
            draft.add(label, _figures(line, kind, found, label), begins=begins)
        facts = sum(scores.facts for scores in found.scores.values())
        beside = [MISSING] * (len(labels) if len(labels) <= _IN_COLUMNS else 1)
        of_all = (Cell(str(facts)), MISSING, MISSING, one_decimal(found.macro_f1), *beside)
        draft.rows.append(Row("all (macro F1)", of_all))
        draft.records.append(record(line, kind, "macro F1", found.macro_f1))
    chosen = tuple(map(Column, labels)) if len(labels) <= _IN_COLUMNS else (Column("the most frequent"),)
    heading = "chosen" if len(labels) <= _IN_COLUMNS else "taken for"
    columns = [ColumnGroup("", tuple(map(Column, _SCORES))), ColumnGroup(heading, chosen)]
    caption = caption_of("labels", groups, None, spread=False)
    return draft.finished("labels", fact_set, columns, caption, file=file, relation=relation)


def _figures(line: Line, kind: str, found: LabelFigures, label: str) -> list[ScoredCell]:
    scores, row = found.scores[label], found.confusion[found.labels.index(label)]
    values = (("precision", scores.precision), ("recall", scores.recall), ("F1", scores.f1))
    figures = [(Cell(str(scores.facts)), record(line, kind, f"{label}: facts", float(scores.facts)))]
    figures += [(one_decimal(value), record(line, kind, f"{label}: {name}", value)) for name, value in values]
    if len(found.labels) <= _IN_COLUMNS:
        chosen = zip(found.labels, row, strict=True)
        return figures + [
            (Cell(str(count), strong=other == label), record(line, kind, f"{label}: {other} chosen", float(count)))
            for other, count in chosen
        ]
    wrong = found.taken_for(label)
    told = ", ".join(f"{other} ({count})" for other, count in list(wrong.items())[:3])
    return [
        *figures,
        (Cell(told) if told else MISSING, record(line, kind, f"{label}: wrong", float(sum(wrong.values())))),
    ]
