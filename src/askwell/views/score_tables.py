"""The tables of scores: init, soft and deep side by side and with their gains; the ablation; baselines; other runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from askwell.evaluation.comparison import Outcomes, pair_outcomes
from askwell.evaluation.metrics import METRICS, TABLE_METRICS, Average
from askwell.evaluation.significance import SIGNIFICANT, permutation_test
from askwell.views.document import Cell, Column, ColumnGroup, headed
from askwell.views.paper_figures import is_distinct_y, paper_source
from askwell.views.study_cells import ARROWS, INIT, KINDS, PRODUCT, PUBLISHED, SOFT, VECTORS, WEIGHTS, RunGroup
from askwell.views.study_rows import Draft, Line, ScoredCell, StudyTable, caption_of, file_stem, groups_of, scored

METRIC_COLUMNS = tuple(map(Column, TABLE_METRICS))


@dataclass(frozen=True)
class Step:
    """From one cell to the next: the gain in points and the p-value of the paired permutation test."""

    gain: float
    p: float
    facts: int
    """Pairs of outcomes, each fact as often as it was asked."""


def change_of(before: RunGroup | None, after: RunGroup | None, metric: str) -> Step | None:
    """The step between two cells, all relations together; None if they have no relation or no seed in common.

    It is the micro difference of `compare_outcomes`, without the intervals, which take long on many facts.
    """
    if before is None or after is None or not {*before.relations} & {*after.relations}:
        return None
    a, b = _by_seed(after), _by_seed(before)
    if isinstance(a, dict) and isinstance(b, dict) and not a.keys() & b.keys():
        return None
    value = METRICS[metric].value
    pairs = pair_outcomes(a, b).pairs
    differences: dict[tuple[str, ...], list[float]] = {}
    for pair in pairs:
        differences.setdefault(pair.fact, []).append(value(pair.a) - value(pair.b))
    sums = np.array([sum(of_fact) for of_fact in differences.values()])
    sums[np.abs(sums) < 1e-12] = 0.0  # seeds that cancel out except for the last bits
    test = permutation_test(sums)
    return Step(METRICS[metric].scale * float(sums.sum()) / len(pairs), test.p, len(pairs))


def _by_seed(group: RunGroup) -> Outcomes:
    """A group's outcomes by seed; a group with one seed is compared with every seed of the other."""
    found = group.outcomes
    return found if len(found) > 1 else next(iter(found.values()))


PaperScore = Callable[[Line, str, str], float | None]
"""The paper's figure for a row, a kind and a metric."""


def no_paper(_line: Line, _kind: str, _metric: str) -> float | None:
    """No figure at all."""
    return None


def main_table(lines: Sequence[Line], fact_set: str, average: Average, paper: PaperScore = no_paper) -> StudyTable:
    """Init, soft and deep by LM and source, each with P@1, P@10 and MRR; the paper has micro averages only."""
    groups, draft = groups_of(lines, ARROWS), Draft()
    theirs = paper if average == "micro" else no_paper
    for line, begins in headed(lines, lambda line: line.lm):
        figures = []
        for kind in ARROWS:
            of_kind = [
                scored(line, kind, metric, average, paper=theirs(line, kind, metric)) for metric in TABLE_METRICS
            ]
            if note := _how_many(line.groups.get(kind), groups):
                of_kind[0] = (Cell(of_kind[0][0].text, note=note), of_kind[0][1])
            figures += of_kind
        draft.add(line.label, figures, begins=begins)
    columns = [ColumnGroup(kind, METRIC_COLUMNS) for kind in ARROWS]
    caption = caption_of("main", groups, average)
    file = file_stem("distinct_y" if is_distinct_y(fact_set) else "main", fact_set)
    file += "" if average == "micro" else f"-{average}"
    return draft.finished("main", fact_set, columns, caption, file=file, average=average)


def _how_many(group: RunGroup | None, groups: Sequence[RunGroup]) -> str:
    """A cell's own number of relations, if it has fewer than others in its table."""
    most = max(len(other.relations) for other in groups)
    return "" if group is None or len(group.relations) == most else f"{len(group.relations)} of {most} relations"


def arrows_table(lines: Sequence[Line], fact_set: str, paper: PaperScore = no_paper) -> StudyTable:
    """Init → soft → deep by metric, with gains; the better of two neighbours is bold if significantly so."""
    draft = Draft()
    for line, begins in headed(lines, lambda line: line.lm):
        figures = [figure for metric in TABLE_METRICS for figure in _arrows(line, metric, paper)]
        draft.add(line.label, figures, begins=begins)
    columns = [ColumnGroup(metric, tuple(map(Column, ARROWS))) for metric in TABLE_METRICS]
    caption = caption_of("full", groups_of(lines, ARROWS), spread=False, threshold=SIGNIFICANT)
    return draft.finished("full", fact_set, columns, caption)


def _arrows(line: Line, metric: str, paper: PaperScore) -> list[ScoredCell]:
    """Init, soft and deep in one metric, each with the gain over the one before."""
    groups = [line.groups.get(kind) for kind in ARROWS]
    steps = [None, *(change_of(before, after, metric) for before, after in pairwise(groups))]
    bold = {
        number if (found.gain > 0) == METRICS[metric].higher_is_better else number - 1
        for number, found in enumerate(steps)
        if found is not None and found.p < SIGNIFICANT
    }
    figures = []
    for number, (kind, group, found) in enumerate(zip(ARROWS, groups, steps, strict=True)):
        gain, p = (None, None) if found is None else (found.gain, found.p)
        cell, record = scored(line, kind, metric, gain=gain, p=p, paper=paper(line, kind, metric))
        if group is not None:
            arrow = "→ " if number and groups[number - 1] is not None else ""
            points = "" if gain is None else f" ({gain:+.1f})".replace("-", "−")
            score = METRICS[metric].text(group.score(metric).mean)
            cell = Cell(f"{arrow}{score}{points}", strong=number in bold)
        figures.append((cell, record))
    return figures


_ABLATION = {INIT: "baseline (init)", WEIGHTS: "weights only", VECTORS: "vectors only", SOFT: "both (soft)"}


def ablation_table(lines: Sequence[Line], fact_set: str, paper: PaperScore = no_paper) -> StudyTable | None:
    """Nothing tuned, weights alone, vectors alone, both: four rows where weights or vectors were tuned alone."""
    entries = [
        _Entry(line, kind, name, f"{line.lm} · {line.label}" if kind == INIT else "")
        for line in lines
        if groups_of([line], (WEIGHTS, VECTORS))
        for kind, name in _ABLATION.items()
    ]
    return _plain_table("ablation", fact_set, entries, paper)


def baselines_table(lines: Sequence[Line], fact_set: str, paper: PaperScore = no_paper) -> StudyTable | None:
    """Hard prompts, untuned or in a product of experts, under the names by which they are known."""
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
        _Entry(line, kind, name := baseline_name(line, kind), begins, name)
        for (line, kind), begins in headed(found, lambda of: of[0].lm)
    ]
    return _plain_table("baselines", fact_set, entries, paper)


def baseline_name(line: Line, kind: str) -> str:
    """LAMA, LPAQA, or in words what the prompts are."""
    known = paper_source(line.source)
    if known == "soft-ran":
        return f"random vectors, untuned: {line.label}"
    if known == "soft-sin" and line.is_plain and all(len(run.spec.templates) == 1 for run in line.groups[kind].runs):
        return f"LAMA: {line.label}"
    ensemble = "learned product" if kind == WEIGHTS else "product" if PRODUCT in line.extras else "mixture"
    weights = "" if kind == WEIGHTS else ", published weights" if PUBLISHED in line.extras else ", uniform"
    apart = f" [{line.apart}]" if line.apart else ""
    project = "LPAQA" if known in ("soft-min", "soft-par") else "hard prompts"
    return f"{project}: {line.source}, {ensemble}{weights}{apart}"


def other_table(lines: Sequence[Line], fact_set: str) -> StudyTable | None:
    """Kinds of runs that no other table shows, so that none is missing from a report."""
    found = [(line, kind) for line in lines for kind in sorted(line.groups) if kind not in KINDS]
    entries = [
        _Entry(line, kind, f"{line.label}: {kind}", begins)
        for (line, kind), begins in headed(found, lambda of: of[0].lm)
    ]
    return _plain_table("other", fact_set, entries, no_paper)


@dataclass(frozen=True)
class _Entry:
    """A row of a table whose columns are the metrics."""

    line: Line
    kind: str
    name: str
    begins: str
    recorded: str = ""
    """The kind in the records, if it is another."""


def _plain_table(name: str, fact_set: str, entries: Sequence[_Entry], paper: PaperScore) -> StudyTable | None:
    """A table whose columns are the metrics; the paper's figures are shown below ours."""
    if not entries:
        return None
    groups, draft = [group for entry in entries if (group := entry.line.groups.get(entry.kind))], Draft()
    for entry in entries:
        line, kind = entry.line, entry.kind
        figures = [scored(line, kind, metric, paper=paper(line, kind, metric)) for metric in TABLE_METRICS]
        recorded = [(cell, {**record, "kind": entry.recorded or kind}) for cell, record in figures]
        draft.add(entry.name, recorded, begins=entry.begins, note=_how_many(line.groups.get(kind), groups))
    return draft.finished(name, fact_set, [ColumnGroup("", METRIC_COLUMNS)], caption_of(name, groups))
