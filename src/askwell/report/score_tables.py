"""The tables of scores: init, soft and deep side by side and with their gains; the ablation; baselines; other runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from askwell.evaluation.compare import Outcomes, pair_outcomes
from askwell.evaluation.metrics import METRICS, TABLE_METRICS
from askwell.evaluation.significance import permutation_test
from askwell.report.cells import ARROWS, INIT, PRODUCT, PUBLISHED, SOFT, VECTORS, WEIGHTS, Average, RunGroup
from askwell.report.page import MISSING, Cell, Column, ColumnGroup, Row, Table
from askwell.report.paper import paper_source
from askwell.report.rows import (
    Line,
    Record,
    StudyTable,
    caption_of,
    file_name,
    groups_of,
    headed,
    of_how_many,
    score_record,
)

LINE = 0.02
"""Below this p the paper calls a difference significant."""


@dataclass(frozen=True)
class Step:
    """From one cell to the next: the gain in points and the p-value of the paired permutation test."""

    gain: float
    p: float
    facts: int
    """Pairs of outcomes, each fact as often as it was asked."""

    @property
    def is_significant(self) -> bool:
        """Whether p is below the paper's threshold."""
        return self.p < LINE


def step(before: RunGroup, after: RunGroup, metric: str) -> Step | None:
    """The step between two cells, all relations together; None if they have no relation or no seed in common.

    It is the micro difference of `compare_outcomes`, without the intervals, which take long on many facts.
    """
    a, b = _by_seed(after), _by_seed(before)
    if not set(before.relations) & set(after.relations):
        return None
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


def with_arrows(lines: Sequence[Line]) -> list[Line]:
    """The rows that have any of init, soft and deep."""
    return [line for line in lines if any(kind in line.groups for kind in ARROWS)]


def main_table(
    lines: Sequence[Line], fact_set: str, average: Average, paper: PaperScore = no_paper, *, name: str = "main"
) -> StudyTable:
    """Init, soft and deep by LM and source, each with P@1, P@10 and MRR."""
    groups = groups_of(lines, ARROWS)
    rows, records = [], []
    for line, begins in headed(lines, lambda line: line.lm):
        cells, of_paper = [], []
        for kind in ARROWS:
            group = line.groups.get(kind)
            note = "" if group is None else of_how_many(group, groups)
            for metric in TABLE_METRICS:
                theirs = paper(line, kind, metric) if average == "micro" else None
                shown = (
                    Cell(group.score(metric, average).text, note=note if metric == "P@1" else "") if group else MISSING
                )
                cells.append(shown)
                of_paper.append(theirs)
                records.append(score_record(line, kind, metric, average, paper=theirs))
        rows += [Row(line.label, tuple(cells), begins=begins), *paper_row(of_paper)]
    columns = tuple(ColumnGroup(kind, tuple(Column(metric) for metric in TABLE_METRICS)) for kind in ARROWS)
    what = "Scores in per cent: prompts as they are (init), tuned at layer 0 (soft), or tuned at all layers (deep)."
    suffix = () if average == "micro" else (average,)
    return StudyTable(
        file_name(name, fact_set, *suffix),
        f"{fact_set}: init, soft, deep ({average} average)",
        Table(caption_of(what, groups, average), "prompts", columns, tuple(rows)),
        tuple(records),
    )


def arrows_table(lines: Sequence[Line], fact_set: str, paper: PaperScore = no_paper) -> StudyTable:
    """Init → soft → deep by metric, with gains; the better of two neighbours is bold if significantly so."""
    groups = groups_of(lines, ARROWS)
    rows: list[Row] = []
    records: list[Record] = []
    for line, begins in headed(lines, lambda line: line.lm):
        cells: list[Cell] = []
        of_paper: list[float | None] = []
        for metric in TABLE_METRICS:
            steps = _steps(line, metric)
            bold = _bold(steps, metric)
            for number, kind in enumerate(ARROWS):
                group, found = line.groups.get(kind), steps[number - 1] if number else None
                theirs = paper(line, kind, metric)
                follows = number > 0 and ARROWS[number - 1] in line.groups
                cells.append(_cell(group, metric, found, kind in bold, follows=follows))
                of_paper.append(theirs)
                gain, p = (None, None) if found is None else (found.gain, found.p)
                records.append(score_record(line, kind, metric, gain=gain, p=p, paper=theirs))
        rows += [Row(line.label, tuple(cells), begins=begins), *paper_row(of_paper)]
    columns = tuple(ColumnGroup(metric, tuple(Column(kind) for kind in ARROWS)) for metric in TABLE_METRICS)
    what = (
        "Scores in per cent; in brackets the gain over the column to the left, on the facts that both answered. Of two "
        f"neighbours the better one is bold if it is significantly better (p < {LINE}, two-sided paired permutation "
        "test over facts, all relations together; a fact's seeds stay together)."
    )
    return StudyTable(
        file_name("full", fact_set),
        f"{fact_set}: init → soft → deep",
        Table(caption_of(what, groups, spread=False), "prompts", columns, tuple(rows)),
        tuple(records),
    )


def paper_row(scores: Sequence[float | None], heading: str = "the paper") -> list[Row]:
    """A row of the paper's figures; none if there is no figure."""
    if all(score is None for score in scores):
        return []
    cells = tuple(MISSING if score is None else Cell(f"{score:.1f}") for score in scores)
    return [Row(heading, cells, pale=True)]


def _steps(line: Line, metric: str) -> list[Step | None]:
    pairs = pairwise(ARROWS)
    return [
        step(line.groups[before], line.groups[after], metric)
        if before in line.groups and after in line.groups
        else None
        for before, after in pairs
    ]


def _bold(steps: Sequence[Step | None], metric: str) -> set[str]:
    """The kinds that are significantly better than a neighbour."""
    return {
        ARROWS[number + 1] if (found.gain > 0) == METRICS[metric].higher_is_better else ARROWS[number]
        for number, found in enumerate(steps)
        if found is not None and found.is_significant
    }


def _cell(group: RunGroup | None, metric: str, found: Step | None, bold: bool, *, follows: bool) -> Cell:
    if group is None:
        return MISSING
    gain = f" ({signed(found.gain)})" if found is not None else ""
    return Cell(f"{'→ ' if follows else ''}{METRICS[metric].text(group.score(metric).mean)}{gain}", strong=bold)


def signed(gain: float) -> str:
    """A gain with its sign."""
    return f"{gain:+.1f}".replace("-", "−")


_NAMES = {INIT: "baseline (init)", WEIGHTS: "weights only", VECTORS: "vectors only", SOFT: "both (soft)"}


def ablated(lines: Sequence[Line]) -> list[Line]:
    """The rows in which weights or vectors were tuned alone."""
    return [line for line in lines if WEIGHTS in line.groups or VECTORS in line.groups]


def ablation_table(lines: Sequence[Line], fact_set: str, paper: PaperScore = no_paper) -> StudyTable:
    """Nothing tuned, weights alone, vectors alone, both: four rows for each LM and source."""
    entries = [
        _Entry(line, kind, name, f"{line.lm} · {line.label}" if kind == INIT else "")
        for line in lines
        for kind, name in _NAMES.items()
    ]
    return _plain_table(
        "ablation", fact_set, "ablation", "Scores in per cent, by what was tuned.", "tuned", entries, paper
    )


def baselines(lines: Sequence[Line]) -> list[tuple[Line, str]]:
    """The rows, each with the kind, that keep their prompts as they are: untuned ones, and products of experts."""
    return [
        (line, kind)
        for line in lines
        for kind in (INIT, WEIGHTS)
        if kind in line.groups and _is_baseline(line, kind, lines)
    ]


def baselines_table(found: Sequence[tuple[Line, str]], fact_set: str, paper: PaperScore = no_paper) -> StudyTable:
    """Prompts that were not tuned, under the names by which they are known."""
    entries = [
        _Entry(line, kind, baseline_name(line, kind, line.groups[kind]), begins)
        for (line, kind), begins in headed(found, lambda of: of[0].lm)
    ]
    what = "Scores, in per cent, of prompts as they are."
    made = _plain_table("baselines", fact_set, "baselines", what, "baseline", entries, paper)
    names = [entry.name for entry in entries for _ in TABLE_METRICS]
    records = ({**record, "kind": name} for record, name in zip(made.records, names, strict=True))
    return replace(made, records=tuple(records))


@dataclass(frozen=True)
class _Entry:
    """A row of a table whose columns are the metrics."""

    line: Line
    kind: str
    name: str
    begins: str


def _plain_table(
    name: str, fact_set: str, title: str, what: str, corner: str, entries: Sequence[_Entry], paper: PaperScore
) -> StudyTable:
    """A table whose columns are the metrics; the paper's figures are shown below ours."""
    groups = [entry.line.groups[entry.kind] for entry in entries if entry.kind in entry.line.groups]
    rows, records = [], []
    for entry in entries:
        group = entry.line.groups.get(entry.kind)
        note = "" if group is None else of_how_many(group, groups)
        theirs = [paper(entry.line, entry.kind, metric) for metric in TABLE_METRICS]
        cells = tuple(MISSING if group is None else Cell(group.score(metric).text) for metric in TABLE_METRICS)
        rows += [Row(entry.name, cells, begins=entry.begins, note=note), *paper_row(theirs)]
        records += [
            score_record(entry.line, entry.kind, metric, paper=of_paper)
            for metric, of_paper in zip(TABLE_METRICS, theirs, strict=True)
        ]
    columns = (ColumnGroup("", tuple(Column(metric) for metric in TABLE_METRICS)),)
    return StudyTable(
        file_name(name, fact_set),
        f"{fact_set}: {title}",
        Table(caption_of(what, groups), corner, columns, tuple(rows)),
        tuple(records),
    )


def baseline_name(line: Line, kind: str, group: RunGroup) -> str:
    """LAMA, LPAQA, or in words what the prompts are."""
    known = paper_source(line.source)
    if known == "soft-ran":
        return f"random vectors, untuned: {line.label}"
    if known == "soft-sin" and all(len(run.spec.templates) == 1 for run in group.runs) and line.is_plain:
        return f"LAMA: {line.label}"
    ensemble = "learned product" if kind == WEIGHTS else "product" if PRODUCT in line.extras else "mixture"
    weights = "" if kind == WEIGHTS else ", published weights" if PUBLISHED in line.extras else ", uniform"
    apart = f" [{line.apart}]" if line.apart else ""
    project = "LPAQA" if known in ("soft-min", "soft-par") else "hard prompts"
    return f"{project}: {line.source}, {ensemble}{weights}{apart}"


def _is_baseline(line: Line, kind: str, lines: Sequence[Line]) -> bool:
    if kind == WEIGHTS:
        return PRODUCT in line.extras
    # Several rows can show the untuned prompts that all of them started from.
    return line is next(other for other in lines if other.groups.get(INIT) and _same(other, line))


def _same(one: Line, other: Line) -> bool:
    return one.groups[INIT].ids == other.groups[INIT].ids


_SHOWN = (*ARROWS, WEIGHTS, VECTORS)


def unusual(lines: Sequence[Line]) -> list[tuple[Line, str]]:
    """Rows and kinds that appear in no other table."""
    return [(line, kind) for line in lines for kind in sorted(line.groups) if kind not in _SHOWN]


def other_table(found: Sequence[tuple[Line, str]], fact_set: str) -> StudyTable:
    """Kinds of runs that no other table shows, so that none is missing from a report."""
    entries = [
        _Entry(line, kind, f"{line.label}: {kind}", begins)
        for (line, kind), begins in headed(found, lambda of: of[0].lm)
    ]
    return _plain_table("other", fact_set, "other runs", "Scores in per cent.", "prompts: tuned", entries, no_paper)
