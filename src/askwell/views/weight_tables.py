"""Tables of the prompts' weights: the effective number of prompts, and static against data-dependent weights."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import get_args

from askwell.evaluation.metrics import TABLE_METRICS
from askwell.runs.record import RunRecord
from askwell.specs.mixture_spec import WeightingName
from askwell.views.document import MISSING, Cell, Column, ColumnGroup, Row, headed, one_decimal
from askwell.views.paper_figures import paper_effective_prompts
from askwell.views.score_tables import METRIC_COLUMNS
from askwell.views.study_cells import DEEP, SOFT, STATIC, WEIGHTS, RunGroup, place_of
from askwell.views.study_rows import Draft, Line, StudyTable, caption_of, groups_of, record, scored

_KINDS = (SOFT, DEEP, WEIGHTS)
_BY_X = {name for name in get_args(WeightingName) if name != STATIC}


def effective_table(lines: Sequence[Line], fact_set: str) -> StudyTable | None:
    """Mean, standard deviation, minimum and maximum over relations, where weights of several prompts were tuned."""
    lines = [line for line in lines if any(_has_several_prompts(group) for group in groups_of([line], _KINDS))]
    if not lines:
        return None
    draft, cells = Draft(), [(line, kind) for line in lines for kind in _KINDS if kind in line.groups]
    for (line, kind), begins in headed(cells, lambda cell: cell[0].lm):
        group = line.groups[kind]
        numbers = [fmean(run.record.effective_prompts for run in of.values()) for of in group.by_relation.values()]
        prompts = fmean(len(run.record.prompts) for run in group.runs)
        figures = [(one_decimal(prompts), record(line, kind, "prompts", prompts))]
        for name, number in {
            "mean": fmean(numbers),
            "std": stdev(numbers) if len(numbers) > 1 else None,
            "min": min(numbers),
            "max": max(numbers),
        }.items():
            theirs = paper_effective_prompts(line, name) if kind == SOFT else None
            figures.append((one_decimal(number), record(line, kind, name, number, paper=theirs)))
        draft.add(f"{line.label}, {kind}", figures, begins=begins, of_paper="it does not name its LM")
    columns = [
        ColumnGroup("", (Column("prompts", "mean"),)),
        ColumnGroup("effective prompts", tuple(map(Column, ("mean", "std", "min", "max")))),
    ]
    caption = caption_of("effective_prompts", groups_of(lines, _KINDS), None, spread=False)
    return draft.finished("effective_prompts", fact_set, columns, caption)


def _has_several_prompts(group: RunGroup) -> bool:
    return any(len(run.record.prompts) > 1 for run in group.runs)


def dependence_table(lines: Sequence[Line], fact_set: str) -> StudyTable | None:
    """For each kind of run whose weights depend on x, the same with static weights above it."""
    groups: list[RunGroup] = []
    draft = Draft()
    for line in (line for line in lines if _BY_X & {*line.extras}):
        weighting, plain = next(extra for extra in line.extras if extra in _BY_X), _without_weighting(line)
        static = next((other for other in lines if other == plain), None)
        for kind in sorted(line.groups, key=place_of):
            begins = f"{line.lm} · {', '.join([plain.source, *plain.extras, kind])}"
            if static is not None and kind in static.groups:
                _add_weighting(draft, STATIC, static, kind, begins)
                groups.append(static.groups[kind])
            else:
                draft.rows.append(Row(STATIC, (MISSING,) * (len(TABLE_METRICS) + 2), begins))
            _add_weighting(draft, weighting, line, kind)
            groups.append(line.groups[kind])
    if not groups:
        return None
    weights = ColumnGroup("weights", (Column("T", "mean"), Column("entropy", "bits, mean over x")))
    columns = [ColumnGroup("", METRIC_COLUMNS), weights]
    return draft.finished("data_dependent", fact_set, columns, caption_of("data_dependent", groups))


def _without_weighting(line: Line) -> Line:
    """The same row with static weights."""
    extras = tuple(extra for extra in line.extras if extra not in _BY_X)
    return Line(line.fact_set, line.lm, line.source, extras, line.apart)


def _add_weighting(draft: Draft, heading: str, line: Line, kind: str, begins: str = "") -> None:
    """Adds the row of a cell: its scores, and the means of its temperature (static weights have none) and entropy."""
    runs = line.groups[kind].runs
    figures = [scored(line, kind, metric) for metric in TABLE_METRICS]
    for name, values in {
        "T": [run.record.temperature for run in runs],
        "entropy": [_entropy(run.record) for run in runs],
    }.items():
        known = [value for value in values if value is not None]
        mean = fmean(known) if known else None
        figures.append((MISSING if mean is None else Cell(f"{mean:.2f}"), record(line, kind, name, mean)))
    draft.add(heading, figures, begins=begins)


def _entropy(record: RunRecord) -> float | None:
    """Return the entropy of a run's weights in bits, over x the mean; None if that was not measured."""
    is_static = record.spec.mixture.weighting == STATIC
    return math.log2(record.effective_prompts) if is_static else record.mean_entropy_over_x
