"""The rows that all tables share, the captions below them, and their figures as plain records for machines.

A row is an LM, asked about a set of facts with prompts of one source in one way. Runs that differ in anything but
relation and seed never share a cell: what the kinds do not distinguish gets its own row, named by its settings or by
what differs.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from askwell.report.cells import EM, INIT, Average, KeptRun, RunGroup, RunKind, how_of, kind_of, source_of
from askwell.report.page import Table

T = TypeVar("T")
_FIRST_SOURCES = ("single", "manual", "mined", "paraphrased")


@dataclass(frozen=True)
class Line:
    """A row: its runs by what was tuned (init, soft, deep, …).

    Untuned runs (init) stand in every line whose tuned runs start from them, so the runs of several lines overlap.
    """

    lm: str
    fact_set: str
    source: str
    extras: tuple[str, ...]
    apart: str
    """What distinguishes it from rows that are otherwise the same; empty if there are none."""
    groups: Mapping[str, RunGroup]

    @property
    def label(self) -> str:
        """The row's heading."""
        named = ", ".join([self.source, *self.extras])
        return f"{named} [{self.apart}]" if self.apart else named

    @property
    def is_plain(self) -> bool:
        """Whether its source alone identifies it."""
        return not self.extras and not self.apart


@dataclass(frozen=True)
class _Key:
    fact_set: str
    lm: str
    source: str
    extras: tuple[str, ...]
    apart: tuple[str, ...]


def lines_of(runs: Sequence[KeptRun]) -> list[Line]:
    """All rows, by set of facts, LM and source."""
    rows: dict[_Key, dict[str, list[KeptRun]]] = defaultdict(lambda: defaultdict(list))
    key_of = _Keys(runs)
    for run in runs:
        kind = kind_of(run.spec)
        rows[key_of(run, kind)][kind.tuned].append(run)
    found = []
    for key in sorted(rows, key=_place):
        kinds = rows[key]
        # How a row is trained does not affect what it starts from.
        plain = rows.get(_Key(key.fact_set, key.lm, key.source, tuple(e for e in key.extras if e != EM), key.apart), {})
        untuned = _split([(INIT, run) for run in kinds.get(INIT) or plain.get(INIT, [])])
        tuned = _split([(kind, run) for kind, group in kinds.items() if kind != INIT for run in group])
        common = untuned[0][1] if len(untuned) == 1 else {}
        for apart, groups in tuned or ([("", {})] if common else []):
            found.append(_line(key, apart, {**common, **groups}))
        if len(untuned) > 1:
            found += [_line(key, apart, groups) for apart, groups in untuned]
    return found


def _line(key: _Key, apart: str, groups: Mapping[str, Sequence[KeptRun]]) -> Line:
    told = "; ".join([*key.apart, *([apart] if apart else [])])
    return Line(
        key.lm, key.fact_set, key.source, key.extras, told, {kind: RunGroup(tuple(r)) for kind, r in groups.items()}
    )


def _place(key: _Key) -> tuple[Any, ...]:
    known = _FIRST_SOURCES.index(key.source) if key.source in _FIRST_SOURCES else len(_FIRST_SOURCES)
    return key.fact_set, key.lm, known, key.source, key.extras, key.apart


class _Keys:
    """Finds the row of a run, and separates rows that have different data under the same names."""

    def __init__(self, runs: Sequence[KeptRun]) -> None:
        self._lms = _numbered(runs, lambda run: run.spec.lm, lambda run: run.spec.lm_sha256)
        self._facts = _numbered(runs, lambda run: run.spec.relation, lambda run: run.spec.facts_sha256)
        self._prompts = _numbered(
            runs, lambda run: (run.spec.relation, run.spec.lm, run.spec.prompts), lambda run: _templates(run)
        )
        self._candidates = {(run.fact_set, run.spec.lm, run.spec.candidates_sha256) for run in runs}

    def __call__(self, run: KeptRun, kind: RunKind) -> _Key:
        spec, apart = run.spec, []
        lm = spec.lm if not self._lms(run) else f"{spec.lm} (another LM of that name, {spec.lm_sha256[:6]})"
        if number := self._facts(run):
            apart.append(f"other facts, {number + 1}")
        if number := self._prompts(run):
            apart.append(f"other templates, {number + 1}")
        vocabularies = [key for key in self._candidates if key[:2] == (run.fact_set, spec.lm)]
        if len(vocabularies) > 1:
            apart.append(f"among {spec.candidates}" if spec.candidates else "among all answers")
        return _Key(run.fact_set, lm, source_of(spec), kind.extras, tuple(apart))


def _numbered(
    runs: Iterable[KeptRun], within: Callable[[KeptRun], Hashable], value: Callable[[KeptRun], str]
) -> Callable[[KeptRun], int]:
    """Which of the values under one name a run has: 0 for the one with the most facts, then the most prompts."""
    sizes: dict[Hashable, dict[str, tuple[int, int]]] = defaultdict(dict)
    for run in runs:
        size = (run.facts + run.left_out, len(run.spec.templates))
        sizes[within(run)][value(run)] = max(size, sizes[within(run)].get(value(run), size))
    orders = {
        name: sorted(found, key=lambda one, found=found: (-found[one][0], -found[one][1], one))
        for name, found in sizes.items()
    }
    return lambda run: orders[within(run)].index(value(run))


def _templates(run: KeptRun) -> str:
    told = "\n".join(f"{prompt.template}\t{prompt.weight}" for prompt in run.spec.templates)
    return hashlib.sha256(told.encode()).hexdigest()


def _split(runs: Sequence[tuple[str, KeptRun]]) -> list[tuple[str, dict[str, list[KeptRun]]]]:
    """The runs of a row, split into one part for each way in which they were done, with its name."""
    hows = {_flat(how_of(run.spec)) for _, run in runs}
    by_kind: dict[str, set[Any]] = defaultdict(set)
    for kind, run in runs:
        by_kind[kind].add(_flat(how_of(run.spec)))
    keep_names = not _one_each(runs, lambda run: _flat(how_of(run.spec)))
    if all(len(ways) == 1 for ways in by_kind.values()) and not keep_names:
        return [("", _kinds(runs))] if runs else []
    parts: dict[Any, list[tuple[str, KeptRun]]] = defaultdict(list)
    for kind, run in runs:
        parts[_flat(how_of(run.spec)), run.spec.setting if keep_names else ""].append((kind, run))
    names = {part: " / ".join(sorted({run.spec.setting for _, run in inside})) for part, inside in parts.items()}
    differing = sorted({field for field, _ in set().union(*hows) - set.intersection(*map(set, hows))})
    told = {
        part: name if list(names.values()).count(name) == 1 else f"{name}: {_fields(dict(part[0]), differing)}"
        for part, name in names.items()
    }
    return [(told[part], _kinds(parts[part])) for part in sorted(parts, key=lambda part: told[part])]


def _one_each(runs: Sequence[tuple[str, KeptRun]], way: Callable[[KeptRun], Hashable]) -> bool:
    """Whether each kind has one run per relation and seed, once different ways are separated."""
    keys = [(kind, way(run), run.spec.relation, run.spec.seed) for kind, run in runs]
    return len(keys) == len(set(keys))


def _kinds(runs: Iterable[tuple[str, KeptRun]]) -> dict[str, list[KeptRun]]:
    kinds: dict[str, list[KeptRun]] = defaultdict(list)
    for kind, run in runs:
        kinds[kind].append(run)
    return dict(kinds)


def _flat(how: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    return frozenset(how.items())


def _fields(how: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{name} {how[name]}" for name in names if how.get(name) is not None)


AVERAGES: dict[Average, str] = {
    "micro": "Micro average: the mean over all facts.",
    "macro": "Macro average: the mean of the relations' means.",
}
FILTERED = "Other right answers for the same x are skipped in all ranks."


def caption_of(what: str, groups: Sequence[RunGroup], average: Average | None = "micro", *, spread: bool = True) -> str:
    """The caption of a table whose cells are these groups; `spread` says whether it shows deviations over seeds."""
    sentences = [
        what,
        _facts(groups),
        f"Ranked among {'; '.join(_vocabularies(groups))}. {FILTERED}",
        AVERAGES[average] if average is not None else "",
        _seeds(groups, spread=spread),
        _trained_unlike(groups),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def groups_of(lines: Iterable[Line], kinds: Iterable[str]) -> list[RunGroup]:
    """The groups of the cells that a table shows."""
    shown = tuple(kinds)
    return [line.groups[kind] for line in lines for kind in shown if kind in line.groups]


def headed(rows: Iterable[T], heading: Callable[[T], str]) -> Iterator[tuple[T, str]]:
    """Each row with its heading, given only at the first row that has it."""
    seen = set()
    for row in rows:
        yield row, "" if heading(row) in seen else heading(row)
        seen.add(heading(row))


def of_how_many(group: RunGroup, groups: Sequence[RunGroup]) -> str:
    """A cell's own number of relations, if it has fewer than others in its table."""
    most = max(len(other.relations) for other in groups)
    return "" if len(group.relations) == most else f"{len(group.relations)} of {most} relations"


def _facts(groups: Sequence[RunGroup]) -> str:
    sets = sorted({run.fact_set for group in groups for run in group.runs})
    relations = {relation for group in groups for relation in group.relations}
    asked = span([group.facts for group in groups])
    left_out = span([group.left_out for group in groups])
    return (
        f"Facts: {', '.join(sets)}, {len(relations)} relation{'s' if len(relations) != 1 else ''}; {asked} test facts "
        f"asked, {left_out} left out{' (by row and column)' if ' to ' in asked + left_out else ''}."
    )


def _vocabularies(groups: Sequence[RunGroup]) -> list[str]:
    return list(dict.fromkeys(run.vocabulary for group in groups for run in group.runs))


def _seeds(groups: Sequence[RunGroup], *, spread: bool) -> str:
    seeds = sorted({seed for group in groups for seed in group.outcome_seeds})
    listed = f"Seed {seeds[0]}." if len(seeds) == 1 else f"Seeds {', '.join(map(str, seeds))}."
    several = sorted({len(group.seeds) for group in groups if len(group.seeds) > 1})
    if several:
        listed += " A figure is the mean over its seeds"
        listed += ", ± their standard deviation" if spread else ""
        listed += f", where there are several ({_listed(several)})."
    if any(len(group.seeds) < len(runs) for group in groups for runs in group.by_relation.values()):
        listed += " Some relations have more seeds than others: each relation counts with its own mean."
    return listed


def _trained_unlike(groups: Sequence[RunGroup]) -> str:
    """How the tuned runs of a table differ, apart from what its rows and columns say."""
    hows = [how_of(run.spec) for group in groups for run in group.runs if run.spec.training is not None]
    told = []
    for field in dict.fromkeys(field for how in hows for field in how):
        values = list(dict.fromkeys(how.get(field) for how in hows))
        if len(values) > 1:
            told.append(f"{field} {', '.join('default' if value is None else str(value) for value in values)}")
    return f"Not all were tuned in the same way: {'; '.join(told)}." if told else ""


def span(numbers: Sequence[int]) -> str:
    """The smallest and the largest of some numbers, or the only one."""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _listed(numbers: Sequence[int]) -> str:
    return " or ".join(map(str, numbers))


FIELDS = (
    "facts", "lm", "prompts", "kind", "figure", "average", "value", "deviation", "seeds", "relations", "test_facts",
    "left_out", "gain", "p", "paper",
)  # fmt: skip
"""The columns of a table as CSV, with one row per figure."""

Record = Mapping[str, Any]


@dataclass(frozen=True)
class StudyTable:
    """A table, its name in file names and in headings, and its content as plain figures."""

    name: str
    title: str
    table: Table
    records: tuple[Record, ...]

    def as_json(self) -> dict[str, Any]:
        """Its title, caption and figures."""
        return {"title": self.title, "caption": self.table.caption, "figures": [dict(r) for r in self.records]}


def record(line: Line, kind: str, figure: str, value: float | None, *, paper: float | None = None) -> Record:
    """A figure of a cell, with everything that identifies it; None where there is none."""
    group = line.groups.get(kind)
    found = dict.fromkeys(FIELDS) | {
        "facts": line.fact_set, "lm": line.lm, "prompts": line.label, "kind": kind, "figure": figure, "value": value,
        "paper": paper,
    }  # fmt: skip
    if group is None:
        return found
    return found | {
        "seeds": len(group.seeds), "relations": len(group.relations), "test_facts": group.facts,
        "left_out": group.left_out,
    }  # fmt: skip


def score_record(
    line: Line,
    kind: str,
    metric: str,
    average: Average = "micro",
    *,
    gain: float | None = None,
    p: float | None = None,
    paper: float | None = None,
) -> Record:
    """A score of a cell; `gain` and `p` are those over the cell before it."""
    group = line.groups.get(kind)
    score = None if group is None else group.score(metric, average)
    found = record(line, kind, metric, None if score is None else score.mean, paper=paper)
    deviation = None if score is None else score.deviation
    return {**found, "average": average, "deviation": deviation, "gain": gain, "p": p}


def file_name(*parts: str) -> str:
    """Parts as a name that any file system accepts."""
    return "-".join("".join(char if char.isalnum() or char in "_." else "-" for char in part) for part in parts)
