"""The tables of a report: the scores of every cell, the paper's figures beside ours, the prompts' weights, labels."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean, stdev

from askwell.evaluation.labels import LabelFigures, added
from askwell.evaluation.metrics import TABLE_METRICS
from askwell.evaluation.significance import SIGNIFICANT
from askwell.runs.record import RunRecord
from askwell.views.document import MISSING, Cell, Column, ColumnGroup, Row, headed, one_decimal
from askwell.views.findings import LMFindings
from askwell.views.paper_figures import paper_effective_prompts, paper_score
from askwell.views.printable import signed
from askwell.views.study_cells import (
    AUTO,
    DEEP,
    INIT,
    KINDS,
    SOFT,
    STATIC,
    WEIGHTS,
    RunGroup,
    change_of,
    in_words,
    place_of,
)
from askwell.views.study_rows import (
    Draft,
    Line,
    StudyTable,
    caption_of,
    file_stem,
    groups_of,
    record,
    relations_text,
    scored,
)

_METRIC_COLUMNS = tuple(map(Column, TABLE_METRICS))


def tables_of(lines: Sequence[Line], findings: Sequence[LMFindings], fact_set: str) -> list[StudyTable]:
    """Return all tables that have something to show; the rows of the first are the cells of `findings`."""
    made = [
        scores_table(findings, fact_set),
        paper_table(lines, fact_set),
        effective_table(lines, fact_set),
        *label_tables(lines, fact_set),
    ]
    return [table for table in made if table is not None]


def scores_table(findings: Sequence[LMFindings], fact_set: str) -> StudyTable:
    """Return all metrics of every cell, and what tuning gained on the same facts."""
    cells, draft = [cell for found in findings for cell in found.cells], Draft()
    groups = [cell.group for cell in cells]
    several = any(len(group.relations) > 1 for group in groups)
    for cell, begins in headed(cells, lambda cell: cell.line.lm):
        before = None if cell.kind == INIT else cell.line.group(INIT)
        steps = {metric: change_of(before, cell.group, metric) for metric in TABLE_METRICS}
        figures = [
            scored(
                cell.line,
                cell.kind,
                metric,
                gain=None if step is None else step.gain,
                p=None if step is None else step.p,
            )
            for metric, step in steps.items()
        ]
        gain, row = steps["P@1"], [shown for shown, _ in figures]
        is_clear = gain is not None and gain.p is not None and gain.p < SIGNIFICANT
        row.append(MISSING if gain is None else Cell(signed(gain.gain), strong=is_clear))
        draft.records += [found for _, found in figures]
        if several:
            macro, found = scored(cell.line, cell.kind, "P@1", "macro")
            row.append(macro)
            draft.records.append(found)
        row.append(Cell(str(cell.group.facts)))
        draft.rows.append(Row(cell.label, tuple(row), begins, _which(cell.line, groups)))
    more = [
        Column("gain in P@1", "by tuning"),
        *([Column("macro P@1", "over relations")] if several else []),
        Column("facts"),
    ]
    caption = caption_of("all_scores", groups, threshold=SIGNIFICANT)
    return draft.finished("all_scores", fact_set, [ColumnGroup("", (*_METRIC_COLUMNS, *more))], caption)


def paper_table(lines: Sequence[Line], fact_set: str) -> StudyTable | None:
    """Return the cells that the paper also has, with its figures below ours."""
    kinds = [kind for kind in KINDS if any(line.group(kind) and paper_score(line, kind, "P@1") for line in lines)]
    lines = [line for line in lines if any(line.group(kind) and paper_score(line, kind, "P@1") for kind in kinds)]
    groups, draft = groups_of(lines, kinds), Draft()
    for line, begins in headed(lines, lambda line: line.lm):
        figures = [
            scored(line, kind, metric, paper=paper_score(line, kind, metric))
            for kind in kinds
            for metric in TABLE_METRICS
        ]
        draft.add(line.label, figures, begins=begins, note=_which(line, groups))
    columns = [ColumnGroup(in_words(kind), _METRIC_COLUMNS, f"{kind} in the paper") for kind in kinds]
    return draft.finished("paper", fact_set, columns, caption_of("paper", groups)) if lines else None


def _which(line: Line, groups: Iterable[RunGroup]) -> str:
    """Return the relations of a row, if other rows of its table have others and its heading does not name them."""
    relations = next((group.relations for group in line.groups.values()), ())
    which = relations_text(relations)
    return "" if which in line.label or all(group.relations == relations for group in groups) else which


_WEIGHTED = (SOFT, DEEP, WEIGHTS)


def effective_table(lines: Sequence[Line], fact_set: str) -> StudyTable | None:
    """Return the effective number of prompts over relations, where weights of several prompts were tuned."""
    tuned = [line for line in lines if any(map(_has_several_prompts, groups_of([line], _WEIGHTED)))]
    cells = [(line, kind) for line in tuned for kind in _WEIGHTED if kind in line.groups]
    if not cells:
        return None
    draft = Draft()
    for (line, kind), begins in headed(cells, lambda cell: cell[0].lm):
        group = line.groups[kind]
        numbers = [fmean(run.record.effective_prompts for run in of.values()) for of in group.by_relation.values()]
        figures = {
            "prompts": fmean(len(run.record.prompts) for run in group.runs),
            "mean": fmean(numbers),
            "std": stdev(numbers) if len(numbers) > 1 else None,
            "min": min(numbers),
            "max": max(numbers),
        }
        row = []
        for name, number in figures.items():
            theirs = paper_effective_prompts(line, name) if kind == SOFT else None
            row.append((one_decimal(number), record(line, kind, name, number, paper=theirs)))
        for name, values in _of_weights(group).items():
            mean = fmean(values) if values else None
            row.append((MISSING if mean is None else Cell(f"{mean:.2f}"), record(line, kind, name, mean)))
        draft.add(f"{line.label}, {group.in_words(kind)}", row, begins=begins, of_paper="it does not name its LM")
    columns = [
        ColumnGroup("", (Column("prompts", "mean"),)),
        ColumnGroup("effective prompts", tuple(map(Column, ("mean", "std", "min", "max")))),
        ColumnGroup("weights", (Column("T", "mean"), Column("entropy", "bits, mean over x"))),
    ]
    caption = caption_of("effective_prompts", groups_of(tuned, _WEIGHTED), spread=False)
    return draft.finished("effective_prompts", fact_set, columns, caption)


def _has_several_prompts(group: RunGroup) -> bool:
    return any(len(run.record.prompts) > 1 for run in group.runs)


def _of_weights(group: RunGroup) -> dict[str, list[float]]:
    """Return what is known of the weights' temperature, which static ones do not have, and of their entropy."""
    records = [run.record for run in group.runs]
    found = {"T": [of.temperature for of in records], "entropy": [_entropy(of) for of in records]}
    return {name: [value for value in values if value is not None] for name, values in found.items()}


def _entropy(of: RunRecord) -> float | None:
    """Return the entropy of a run's weights in bits, over x the mean; None if that was not measured."""
    is_static = of.mixture.weighting in (AUTO, STATIC)  # nothing was chosen where nothing was tuned
    return math.log2(of.effective_prompts) if is_static else of.mean_entropy_over_x


_IN_COLUMNS = 10
"""Up to this many labels, each has a column of the confusion table; beyond, only the most frequent errors are named."""
_Labelled = tuple[Line, str, LabelFigures]
"""The line and kind of a cell, and the figures of its labels."""


def label_tables(lines: Sequence[Line], fact_set: str) -> list[StudyTable]:
    """Return a table for each relation and set of labels, with a row for each label of every run."""
    cells: dict[tuple[str, tuple[str, ...]], list[_Labelled]] = defaultdict(list)
    for line in lines:
        for kind in sorted(line.groups, key=place_of):
            for relation, runs in line.groups[kind].by_relation.items():
                found = added([run.record.test.labels for run in runs.values()])
                if found is not None:
                    cells[relation, found.labels].append((line, kind, found))
    tables: list[StudyTable] = []
    names = []
    for (relation, labels), of_labels in cells.items():
        names.append(file_stem("labels", relation))
        again = names.count(names[-1])
        file = names[-1] if again == 1 else f"{names[-1]}-{again}"
        tables.append(_label_table(of_labels, fact_set, relation, labels, file))
    return tables


def _label_table(
    cells: Sequence[_Labelled], fact_set: str, relation: str, labels: Sequence[str], file: str
) -> StudyTable:
    draft, groups = Draft(), []
    few = len(labels) <= _IN_COLUMNS
    chosen = ColumnGroup("chosen", tuple(map(Column, labels))) if few else _TAKEN_FOR
    for line, kind, found in cells:
        groups.append(line.groups[kind].among([relation]))
        name_of_cell = f"{line.lm} · {line.label}, {in_words(kind)}"
        for label, begins in headed(labels, lambda _, name=name_of_cell: name):
            figures = [
                (cell, record(line, kind, f"{label}: {name}", value)) for name, cell, value in _of_label(found, label)
            ]
            draft.add(label, figures, begins=begins)
        facts = Cell(str(sum(scores.facts for scores in found.scores.values())))
        beside = [MISSING] * len(chosen.columns)
        draft.rows.append(Row("all (macro F1)", (facts, MISSING, MISSING, one_decimal(found.macro_f1), *beside)))
        draft.records.append(record(line, kind, "macro F1", found.macro_f1))
    columns = [ColumnGroup("", tuple(map(Column, ("facts", "precision", "recall", "F1")))), chosen]
    caption = caption_of("labels", groups, spread=False)
    return draft.finished("labels", fact_set, columns, caption, file=file, relation=relation)


_TAKEN_FOR = ColumnGroup("taken for", (Column("the most frequent"),))


def _of_label(found: LabelFigures, label: str) -> Iterator[tuple[str, Cell, float | None]]:
    """Yield the figures of a label: their names, what is shown of them, and their values."""
    scores = found.scores[label]
    yield "facts", Cell(str(scores.facts)), float(scores.facts)
    for name, value in (("precision", scores.precision), ("recall", scores.recall), ("F1", scores.f1)):
        yield name, one_decimal(value), value
    if len(found.labels) <= _IN_COLUMNS:
        for other, count in zip(found.labels, found.confusion[found.labels.index(label)], strict=True):
            yield f"{other} chosen", Cell(str(count), strong=other == label), float(count)
    else:
        wrong = found.taken_for(label)
        named = ", ".join(f"{other} ({count})" for other, count in list(wrong.items())[:3])
        yield "wrong", Cell(named) if named else MISSING, float(sum(wrong.values()))
