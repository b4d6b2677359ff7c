"""The tables of a report: the scores of every cell, the paper's figures beside ours, the prompts' weights, labels."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean, stdev

from askwell.evaluation.labels import LabelFigures, added
from askwell.evaluation.metrics import TABLE_METRICS
from askwell.evaluation.significance import SIGNIFICANT
from askwell.runs.record import RunRecord
from askwell.runs.run_group import KeptRun, RunGroup
from askwell.views.document import MISSING, Cell, Column, ColumnGroup, Row, headed, one_decimal
from askwell.views.findings import LMFindings
from askwell.views.printable import counted, signed
from askwell.views.study_cells import AUTO, DEEP, INIT, KINDS, SOFT, STATIC, WEIGHTS, change_of, in_words, place_of
from askwell.views.study_rows import (
    Draft,
    Line,
    StudyCell,
    StudyTable,
    caption_of,
    file_stem,
    groups_of,
    read_texts,
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
                gain=None if step is None else step.difference,
                p=None if step is None or math.isnan(step.p) else step.p,
            )
            for metric, step in steps.items()
        ]
        gain, row = steps["P@1"], [shown for shown, _ in figures]
        row.append(MISSING if gain is None else Cell(signed(gain.difference), strong=gain.is_clear))
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
        draft.add(StudyCell(line, kind, group).label, row, begins=begins, of_paper="it does not name its LM")
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


# ── the paper's published figures ─────────────────────────────────────────────────────────────────────────────────────

_PUBLISHED = read_texts("paper_figures.toml")
_METRICS = ("P@1", "P@10", "MRR")
_SETS = {"trex_extend": "trex_extended"}  # the name of the released folder
_SOURCES = {"manual": "single"}
_RECIPES = {
    "plateau": "until the log-loss on dev no longer falls",
    "cycle": "one cycle over a budget of pairs",
    "paper": "the paper's schedule",
}
_METHODS = {"gradient": "by gradient", "em": "by EM"}
# A relation's count may differ a little from the paper's, e.g. by repeated lines.
_NEARLY = 0.97


def paper_score(line: Line, kind: str, metric: str) -> float | None:
    """Return the paper's figure for a cell, if it has one for the same LM, facts and source of prompts."""
    if metric not in _METRICS or not line.is_plain:
        return None
    found = _PUBLISHED["scores"].get(_paper_set(line.fact_set), {}).get(line.lm.rpartition("/")[2], {})
    figures = found.get(_paper_source(line.source), {}).get(kind)
    return None if figures is None else figures[_METRICS.index(metric)]


def paper_effective_prompts(line: Line, figure: str) -> float | None:
    """Return the mean, std, min or max of the effective number of prompts in the paper."""
    if not line.is_plain:
        return None
    by_source = _PUBLISHED["effective_prompts"].get(_paper_set(line.fact_set), {})
    return by_source.get(_paper_source(line.source), {}).get(figure)


def _paper_source(source: str) -> str:
    return "random" if source.startswith("random") else _SOURCES.get(source, source)


def _paper_set(fact_set: str) -> str:
    # T-REx split so that no y is in two splits.
    return "distinct_y" if "distinct" in fact_set else _SETS.get(fact_set, fact_set)


def differences(runs: Sequence[KeptRun]) -> tuple[str, ...]:
    """Return what to bear in mind when comparing these runs with the paper's figures, as sentences."""
    told = ["Ranks: we skip other right answers for the same x; the paper ranks y among all words."]
    if any(len(run.spec.templates) > 1 for run in runs):
        told.append("Answers: tokens that spell the same word in their places count as one answer here.")
    if left_out := sum(run.record.test.left_out_count for run in runs):
        told.append(
            f"Facts: {left_out} of {left_out + sum(run.facts for run in runs)} facts (over all runs) could not be "
            "asked, e.g. because y is not one token of the LM, and are left out of all scores."
        )
    trained = {(run.spec.training.recipe, run.spec.training.method) for run in runs if run.spec.training is not None}
    if others := sorted(trained - {("paper", "em")}):
        ways = "; ".join(f"{_RECIPES[recipe]}, {_METHODS[method]}" for recipe, method in others)
        told.append(f"Training: the paper's released code trains by EM; here: {ways}.")
    if candidates := sorted({run.spec.candidates for run in runs if run.spec.candidates}):
        told.append(f"Vocabulary: answers are ranked among {', '.join(candidates)}.")
    if samples := list(_samples(runs)):
        told.append(f"Sample: {'; '.join(samples)}.")
    return tuple(told)


def _samples(runs: Sequence[KeptRun]) -> list[str]:
    """Return which sets have fewer facts here than in the paper."""
    found = []
    for fact_set in sorted({run.fact_set for run in runs}):
        counts = {run.spec.relation: run.record.relation.counts for run in runs if run.fact_set == fact_set}
        ours = fmean(of.get("read", 0) for of in counts.values())
        theirs = _PUBLISHED["pairs"].get(_paper_set(fact_set))
        if theirs is not None and ours < _NEARLY * theirs:
            found.append(
                f"{fact_set} has {ours:.0f} facts per relation ({counted(len(counts), 'relation')}) here, including "
                f"train and dev, {theirs:.0f} in the paper"
            )
    return found
