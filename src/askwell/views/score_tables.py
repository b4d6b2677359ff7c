"""The tables of scores: init, soft and deep side by side and with their gains; the ablation; baselines; other runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from askwell.evaluation.metrics import METRICS, TABLE_METRICS, Average
from askwell.evaluation.significance import SIGNIFICANT
from askwell.views.document import Cell, Column, ColumnGroup, headed
from askwell.views.paper_figures import is_distinct_y, paper_score, paper_source
from askwell.views.study_cells import (
    ARROWS,
    DEEP,
    INIT,
    KINDS,
    PRODUCT,
    PUBLISHED,
    SOFT,
    VECTORS,
    WEIGHTS,
    RunGroup,
    change_of,
)
from askwell.views.study_rows import (
    Draft,
    Line,
    ScoredCell,
    StudyTable,
    caption_of,
    file_stem,
    groups_of,
    relations_text,
    scored,
)

METRIC_COLUMNS = tuple(map(Column, TABLE_METRICS))


def main_table(lines: Sequence[Line], fact_set: str, average: Average) -> StudyTable:
    """Return init, soft and deep by LM and source, each with P@1, P@10 and MRR; the paper has micro averages only."""
    groups, draft = groups_of(lines, ARROWS), Draft()
    for line, begins in headed(lines, lambda line: line.lm):
        figures = [
            scored(line, kind, metric, average, paper=paper_score(line, kind, metric) if average == "micro" else None)
            for kind in ARROWS
            for metric in TABLE_METRICS
        ]
        draft.add(line.label, figures, begins=begins, note=_which(line, groups))
    kinds = [kind for kind in ARROWS if groups_of(lines, [kind])]
    columns = [ColumnGroup(kind, METRIC_COLUMNS, note) for kind, note in _KINDS.items()]
    caption = caption_of("main", groups, average)
    file = file_stem("distinct_y" if is_distinct_y(fact_set) else "main", fact_set)
    file += "" if average == "micro" else f"-{average}"
    return draft.finished("main", fact_set, columns, caption, file=file, average=average, kinds=", ".join(kinds))


_KINDS = {INIT: "untuned prompts", SOFT: "tuned at layer 0", DEEP: "tuned at all layers"}
"""What the kinds of the paper's tables are."""


def _which(line: Line, groups: Sequence[RunGroup]) -> str:
    """The relations of a row, if other rows of its table have others and its heading does not name them."""
    relations = next((group.relations for group in line.groups.values()), ())
    is_alike = all(group.relations == relations for group in groups)
    which = relations_text(relations)
    return "" if is_alike or which in line.label else which


def arrows_table(lines: Sequence[Line], fact_set: str) -> StudyTable:
    """Init → soft → deep by metric, with gains; the better of two neighbours is bold if significantly so."""
    draft = Draft()
    for line, begins in headed(lines, lambda line: line.lm):
        figures = [figure for metric in TABLE_METRICS for figure in _arrows(line, metric)]
        draft.add(line.label, figures, begins=begins)
    columns = [ColumnGroup(metric, tuple(map(Column, ARROWS))) for metric in TABLE_METRICS]
    caption = caption_of("full", groups_of(lines, ARROWS), spread=False, threshold=SIGNIFICANT)
    return draft.finished("full", fact_set, columns, caption)


def _arrows(line: Line, metric: str) -> list[ScoredCell]:
    """Init, soft and deep in one metric, each with the gain over the one before."""
    groups = [line.group(kind) for kind in ARROWS]
    steps = [None, *(change_of(before, after, metric) for before, after in pairwise(groups))]
    bold = {
        number if (found.gain > 0) == METRICS[metric].higher_is_better else number - 1
        for number, found in enumerate(steps)
        if found is not None and found.p is not None and found.p < SIGNIFICANT
    }
    figures = []
    for number, (kind, group, found) in enumerate(zip(ARROWS, groups, steps, strict=True)):
        gain, p = (None, None) if found is None else (found.gain, found.p)
        cell, record = scored(line, kind, metric, gain=gain, p=p, paper=paper_score(line, kind, metric))
        if group is not None:
            arrow = "→ " if number and groups[number - 1] is not None else ""
            points = "" if gain is None else f" ({gain:+.1f})".replace("-", "−")
            score = METRICS[metric].text(group.score(metric).mean)
            cell = Cell(f"{arrow}{score}{points}", strong=number in bold)
        figures.append((cell, record))
    return figures


_ABLATION = {INIT: "baseline (init)", WEIGHTS: "weights only", VECTORS: "vectors only", SOFT: "both (soft)"}


def ablation_table(lines: Sequence[Line], fact_set: str) -> StudyTable | None:
    """Nothing tuned, weights alone, vectors alone, both: four rows where weights or vectors were tuned alone."""
    entries = [
        _Entry(line, kind, name, f"{line.lm} · {line.label}" if kind == INIT else "")
        for line in lines
        if groups_of([line], (WEIGHTS, VECTORS))
        for kind, name in _ABLATION.items()
    ]
    return _plain_table("ablation", fact_set, entries)


def baselines_table(lines: Sequence[Line], fact_set: str) -> StudyTable | None:
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
    return _plain_table("baselines", fact_set, entries)


def baseline_name(line: Line, kind: str) -> str:
    """LAMA, LPAQA, or in words what the prompts are."""
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
    """Kinds of runs that no other table shows, so that none is missing from a report."""
    found = [(line, kind) for line in lines for kind in sorted(line.groups) if kind not in KINDS]
    entries = [
        _Entry(line, kind, f"{line.label}: {kind}", begins)
        for (line, kind), begins in headed(found, lambda of: of[0].lm)
    ]
    return _plain_table("other", fact_set, entries)


@dataclass(frozen=True)
class _Entry:
    """A row of a table whose columns are the metrics."""

    line: Line
    kind: str
    name: str
    begins: str
    recorded: str = ""
    """The kind in the records, if it is another."""


def _plain_table(name: str, fact_set: str, entries: Sequence[_Entry]) -> StudyTable | None:
    """A table whose columns are the metrics; the paper's figures are shown below ours."""
    if not entries:
        return None
    groups, draft = [group for entry in entries if (group := entry.line.group(entry.kind))], Draft()
    for entry in entries:
        line, kind = entry.line, entry.kind
        figures = [scored(line, kind, metric, paper=paper_score(line, kind, metric)) for metric in TABLE_METRICS]
        recorded = [(cell, {**record, "kind": entry.recorded or kind}) for cell, record in figures]
        draft.add(entry.name, recorded, begins=entry.begins, note=_which(line, groups))
    return draft.finished(name, fact_set, [ColumnGroup("", METRIC_COLUMNS)], caption_of(name, groups))
