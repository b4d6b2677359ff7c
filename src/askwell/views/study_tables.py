"""The tables of a report: init, soft and deep side by side and with their gains; the ablation; baselines; other runs;
the prompts' weights; labels."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import fmean, stdev
from typing import get_args

from askwell.evaluation.labels import LabelFigures, added
from askwell.evaluation.metrics import METRICS, TABLE_METRICS, Average
from askwell.evaluation.significance import SIGNIFICANT
from askwell.runs.record import RunRecord
from askwell.specs.mixture_spec import WeightingName
from askwell.views.document import MISSING, Cell, Column, ColumnGroup, Row, headed, one_decimal
from askwell.views.paper_figures import is_distinct_y, paper_effective_prompts, paper_score, paper_source
from askwell.views.printable import signed
from askwell.views.study_cells import (
    ARROWS,
    DEEP,
    INIT,
    KINDS,
    PRODUCT,
    PUBLISHED,
    SOFT,
    STATIC,
    VECTORS,
    WEIGHTS,
    RunGroup,
    change_of,
    place_of,
)
from askwell.views.study_rows import (
    Draft,
    Line,
    ScoredCell,
    StudyTable,
    caption_of,
    file_stem,
    groups_of,
    record,
    relations_text,
    scored,
)

_METRIC_COLUMNS = tuple(map(Column, TABLE_METRICS))
_NOTES = {INIT: "untuned prompts", SOFT: "tuned at layer 0", DEEP: "tuned at all layers"}
"""What the kinds of the paper's tables are."""


def tables_of(lines: Sequence[Line], arrows: Sequence[Line], fact_set: str) -> list[StudyTable]:
    """Return all tables that have something to show; the rows of the first are `arrows`."""
    several = any(len(group.relations) > 1 for line in arrows for group in line.groups.values())
    made = [
        main_table(arrows, fact_set, "micro") if arrows else None,
        arrows_table(arrows, fact_set) if arrows else None,
        main_table(arrows, fact_set, "macro") if several else None,
        baselines_table(lines, fact_set),
        ablation_table(lines, fact_set),
        effective_table(lines, fact_set),
        dependence_table(lines, fact_set),
        other_table(lines, fact_set),
        *label_tables(lines, fact_set),
    ]
    return [table for table in made if table is not None]


def main_table(lines: Sequence[Line], fact_set: str, average: Average) -> StudyTable:
    """Return init, soft and deep by LM and source, each with all metrics; the paper has micro averages only."""
    groups, draft = groups_of(lines, ARROWS), Draft()
    for line, begins in headed(lines, lambda line: line.lm):
        figures = [
            scored(line, kind, metric, average, paper=paper_score(line, kind, metric) if average == "micro" else None)
            for kind in ARROWS
            for metric in TABLE_METRICS
        ]
        draft.add(line.label, figures, begins=begins, note=_which(line, groups))
    kinds = ", ".join(kind for kind in ARROWS if groups_of(lines, [kind]))
    columns = [ColumnGroup(kind, _METRIC_COLUMNS, note) for kind, note in _NOTES.items()]
    file = file_stem("distinct_y" if is_distinct_y(fact_set) else "main", fact_set)
    file += "" if average == "micro" else f"-{average}"
    caption = caption_of("main", groups, average)
    return draft.finished("main", fact_set, columns, caption, file=file, average=average, kinds=kinds)


def _which(line: Line, groups: Iterable[RunGroup]) -> str:
    """Return the relations of a row, if other rows of its table have others and its heading does not name them."""
    relations = next((group.relations for group in line.groups.values()), ())
    which = relations_text(relations)
    return "" if which in line.label or all(group.relations == relations for group in groups) else which


def arrows_table(lines: Sequence[Line], fact_set: str) -> StudyTable:
    """Return init → soft → deep by metric, with gains; the better of two neighbours is bold if significantly so."""
    draft = Draft()
    for line, begins in headed(lines, lambda line: line.lm):
        figures = [figure for metric in TABLE_METRICS for figure in _arrows(line, metric)]
        draft.add(line.label, figures, begins=begins)
    columns = [ColumnGroup(metric, tuple(map(Column, ARROWS))) for metric in TABLE_METRICS]
    caption = caption_of("full", groups_of(lines, ARROWS), spread=False, threshold=SIGNIFICANT)
    return draft.finished("full", fact_set, columns, caption)


def _arrows(line: Line, metric: str) -> list[ScoredCell]:
    """Return init, soft and deep in one metric, each with the gain over the one before."""
    groups = [line.group(kind) for kind in ARROWS]
    steps = [None, *(change_of(before, after, metric) for before, after in pairwise(groups))]
    bold = {
        number if (step.gain > 0) == METRICS[metric].higher_is_better else number - 1
        for number, step in enumerate(steps)
        if step is not None and step.p is not None and step.p < SIGNIFICANT
    }
    figures = []
    for number, (kind, group, step) in enumerate(zip(ARROWS, groups, steps, strict=True)):
        gain, p = (None, None) if step is None else (step.gain, step.p)
        cell, found = scored(line, kind, metric, gain=gain, p=p, paper=paper_score(line, kind, metric))
        if group is not None:
            arrow = "→ " if number and groups[number - 1] is not None else ""
            points = "" if gain is None else f" ({signed(gain)})"
            score = METRICS[metric].text(group.score(metric).mean)
            cell = Cell(f"{arrow}{score}{points}", strong=number in bold)
        figures.append((cell, found))
    return figures


_Entry = tuple[Line, str, str, str]
"""A row of a table whose columns are the metrics: its cell's line and kind, its heading, and that of its group."""
_ABLATION = {INIT: "baseline (init)", WEIGHTS: "weights only", VECTORS: "vectors only", SOFT: "both (soft)"}


def ablation_table(lines: Sequence[Line], fact_set: str) -> StudyTable | None:
    """Return four rows where weights or vectors were tuned alone: nothing tuned, weights, vectors, both."""
    entries = [
        (line, kind, heading, f"{line.lm} · {line.label}" if kind == INIT else "")
        for line in lines
        if groups_of([line], (WEIGHTS, VECTORS))
        for kind, heading in _ABLATION.items()
    ]
    return _metrics_table("ablation", fact_set, entries)


def baselines_table(lines: Sequence[Line], fact_set: str) -> StudyTable | None:
    """Return hard prompts, untuned or in a product of experts, under the names by which they are known."""
    found, seen = [], set()
    for line in lines:
        if INIT in line.groups:
            # Several rows can show the untuned prompts that all of them started from.
            runs = frozenset(run.spec.id for run in line.groups[INIT].runs)
            found += [(line, INIT)] if runs not in seen else []
            seen.add(runs)
        if WEIGHTS in line.groups and PRODUCT in line.extras:
            found.append((line, WEIGHTS))
    entries = [
        (line, kind, _baseline_name(line, kind), begins) for (line, kind), begins in headed(found, lambda of: of[0].lm)
    ]
    return _metrics_table("baselines", fact_set, entries)


def _baseline_name(line: Line, kind: str) -> str:
    """Return LAMA, LPAQA, or in words what the prompts are."""
    known = paper_source(line.source)
    if known == "random":
        return f"random vectors, untuned: {line.label}"
    if known == "single" and line.is_plain and all(len(run.spec.templates) == 1 for run in line.groups[kind].runs):
        return f"LAMA: {line.label}"
    ensemble = "learned product" if kind == WEIGHTS else "product" if PRODUCT in line.extras else "mixture"
    weights = "" if kind == WEIGHTS else ", published weights" if PUBLISHED in line.extras else ", uniform"
    apart = f" [{line.apart}]" if line.apart else ""
    project = "LPAQA" if known in ("mined", "paraphrased") else "hard prompts"
    return f"{project}: {line.source}, {ensemble}{weights}{apart}"


def other_table(lines: Sequence[Line], fact_set: str) -> StudyTable | None:
    """Return the kinds of runs that no other table shows, so that none is missing from a report."""
    found = [(line, kind) for line in lines for kind in sorted(line.groups) if kind not in KINDS]
    entries = [
        (line, kind, f"{line.label}: {kind}", begins) for (line, kind), begins in headed(found, lambda of: of[0].lm)
    ]
    return _metrics_table("other", fact_set, entries)


def _metrics_table(name: str, fact_set: str, entries: Sequence[_Entry]) -> StudyTable | None:
    """Return a table whose columns are the metrics; the paper's figures are shown below ours."""
    if not entries:
        return None
    groups, draft = [group for line, kind, _, _ in entries if (group := line.group(kind))], Draft()
    for line, kind, heading, begins in entries:
        figures = [scored(line, kind, metric, paper=paper_score(line, kind, metric)) for metric in TABLE_METRICS]
        recorded = heading if name == "baselines" else kind
        figures = [(cell, {**found, "kind": recorded}) for cell, found in figures]
        draft.add(heading, figures, begins=begins, note=_which(line, groups))
    return draft.finished(name, fact_set, [ColumnGroup("", _METRIC_COLUMNS)], caption_of(name, groups))


_WEIGHTED = (SOFT, DEEP, WEIGHTS)
_BY_X = {name for name in get_args(WeightingName) if name not in ("auto", STATIC)}


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
        draft.add(f"{line.label}, {kind}", row, begins=begins, of_paper="it does not name its LM")
    columns = [
        ColumnGroup("", (Column("prompts", "mean"),)),
        ColumnGroup("effective prompts", tuple(map(Column, ("mean", "std", "min", "max")))),
    ]
    caption = caption_of("effective_prompts", groups_of(tuned, _WEIGHTED), None, spread=False)
    return draft.finished("effective_prompts", fact_set, columns, caption)


def _has_several_prompts(group: RunGroup) -> bool:
    return any(len(run.record.prompts) > 1 for run in group.runs)


def dependence_table(lines: Sequence[Line], fact_set: str) -> StudyTable | None:
    """Return each kind of run whose weights depend on x, with the same with static weights above it."""
    groups: list[RunGroup] = []
    draft = Draft()
    for line in (line for line in lines if _BY_X & {*line.extras}):
        weighting = next(extra for extra in line.extras if extra in _BY_X)
        extras = tuple(extra for extra in line.extras if extra not in _BY_X)
        plain = Line(line.fact_set, line.lm, line.source, extras, line.apart)
        static = next((other for other in lines if other == plain), plain)
        for kind in sorted(line.groups, key=place_of):
            begins = f"{line.lm} · {', '.join([line.source, *extras, kind])}"
            if kind in static.groups:
                draft.add(STATIC, _weighting_figures(static, kind), begins=begins)
                groups.append(static.groups[kind])
            else:
                draft.rows.append(Row(STATIC, (MISSING,) * (len(TABLE_METRICS) + 2), begins))
            draft.add(weighting, _weighting_figures(line, kind))
            groups.append(line.groups[kind])
    if not groups:
        return None
    weights = ColumnGroup("weights", (Column("T", "mean"), Column("entropy", "bits, mean over x")))
    columns = [ColumnGroup("", _METRIC_COLUMNS), weights]
    return draft.finished("data_dependent", fact_set, columns, caption_of("data_dependent", groups))


def _weighting_figures(line: Line, kind: str) -> list[ScoredCell]:
    """Return the scores of a cell, and the means of its temperature (static weights have none) and entropy."""
    records = [run.record for run in line.groups[kind].runs]
    figures = [scored(line, kind, metric) for metric in TABLE_METRICS]
    for name, values in {"T": [of.temperature for of in records], "entropy": map(_entropy, records)}.items():
        known = [value for value in values if value is not None]
        mean = fmean(known) if known else None
        figures.append((MISSING if mean is None else Cell(f"{mean:.2f}"), record(line, kind, name, mean)))
    return figures


def _entropy(of: RunRecord) -> float | None:
    """Return the entropy of a run's weights in bits, over x the mean; None if that was not measured."""
    return math.log2(of.effective_prompts) if of.mixture.weighting == STATIC else of.mean_entropy_over_x


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
        for label, begins in headed(labels, lambda _, line=line, kind=kind: f"{line.lm} · {line.label}, {kind}"):
            figures = [
                (cell, record(line, kind, f"{label}: {name}", value)) for name, cell, value in _of_label(found, label)
            ]
            draft.add(label, figures, begins=begins)
        facts = Cell(str(sum(scores.facts for scores in found.scores.values())))
        beside = [MISSING] * len(chosen.columns)
        draft.rows.append(Row("all (macro F1)", (facts, MISSING, MISSING, one_decimal(found.macro_f1), *beside)))
        draft.records.append(record(line, kind, "macro F1", found.macro_f1))
    columns = [ColumnGroup("", tuple(map(Column, ("facts", "precision", "recall", "F1")))), chosen]
    caption = caption_of("labels", groups, None, spread=False)
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
