"""The rows that all tables share, their captions, and their figures as plain records for machines.

A row is an LM, asked about a set of facts with prompts of one source in one way. Runs that differ in anything but
relation and seed never share a cell: what the kinds do not distinguish gets its own row, named by its settings or by
what differs.
"""

import hashlib
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from askwell.evaluation.metrics import TABLE_METRICS, Average, units_of
from askwell.views.document import MISSING, Cell, ColumnGroup, Document, Row, Section, Table, one_decimal
from askwell.views.printable import visible
from askwell.views.shown import ShowsItself
from askwell.views.study_cells import EM, INIT, KeptRun, RunGroup, how_of, kind_of, place_of, source_of


def read_texts(name: str) -> dict[str, Any]:
    """Return the content of a TOML file of this room."""
    return tomllib.loads(files("askwell.views").joinpath(name).read_text(encoding="utf-8"))


TEXTS: dict[str, dict[str, Any]] = read_texts("texts.toml")
"""The texts of tables and figures, by name."""
_FIRST_SOURCES = ("single", "manual", "mined", "paraphrased")
_ANSWERS = {"one-token": "one-token answers", "any-length": "answers of any length"}
"""What rows say where a report has both."""
_NAMED_RELATIONS = 3
_RunsByKind = dict[str, list[KeptRun]]


@dataclass(frozen=True)
class Line:
    """A row: its runs by what was tuned (init, soft, deep, …).

    Untuned runs (init) are in every line whose tuned runs start from them, so the runs of several lines overlap.
    """

    fact_set: str
    lm: str
    source: str
    extras: tuple[str, ...] = ()
    apart: str = ""
    """What distinguishes it from rows that are otherwise the same; empty if there are none."""
    groups: Mapping[str, RunGroup] = field(default_factory=dict, compare=False)

    def group(self, kind: str) -> RunGroup | None:
        """Return the runs of a kind; where no run was left untuned, the tuned ones as they were before."""
        if kind != INIT or INIT in self.groups:
            return self.groups.get(kind)
        tuned = (self.groups[one] for one in sorted(self.groups, key=place_of))
        return next((before for group in tuned if (before := group.before) is not None), None)

    @property
    def label(self) -> str:
        """The row's heading."""
        named = ", ".join([self.source, *self.extras])
        return f"{named} [{self.apart}]" if self.apart else named

    @property
    def is_plain(self) -> bool:
        """Whether its source alone identifies it."""
        return not self.extras and not self.apart


def lines_of(runs: Sequence[KeptRun]) -> list[Line]:
    """All rows, by set of facts, LM and source."""
    rows: dict[Line, _RunsByKind] = defaultdict(lambda: defaultdict(list))
    row_of = _row_finder(runs)
    for run in runs:
        rows[row_of(run)][kind_of(run.spec).tuned].append(run)
    found = []
    for row in sorted(rows, key=_place):
        kinds = rows[row]
        # How a row is trained does not affect what it starts from.
        plain = rows.get(replace(row, extras=tuple(extra for extra in row.extras if extra != EM)), {})
        untuned = _split({INIT: kinds.get(INIT) or plain.get(INIT, [])})
        tuned = _split({kind: runs for kind, runs in kinds.items() if kind != INIT})
        common = next(iter(untuned.values())) if len(untuned) == 1 else {}
        for apart, groups in (tuned or ({"": {}} if common else {})).items():
            found.append(_line(row, apart, {**common, **groups}))
        if len(untuned) > 1:
            found += [_line(row, apart, groups) for apart, groups in untuned.items()]
    return found


def _line(row: Line, apart: str, groups: _RunsByKind) -> Line:
    named = "; ".join(part for part in (row.apart, apart) if part)
    return replace(row, apart=named, groups={kind: RunGroup(tuple(runs)) for kind, runs in groups.items()})


def same_facts(lines: Iterable[Line], kinds: Sequence[str] | None = None) -> list[Line]:
    """Return the rows with these kinds alone, all figures of a row on the same facts: where some kinds lack relations
    that others have, a row becomes several."""
    return [part for line in lines for part in _by_relations(line, kinds)]


def _by_relations(line: Line, kinds: Sequence[str] | None) -> list[Line]:
    groups = {kind: group for kind, group in line.groups.items() if kinds is None or kind in kinds}
    relations = dict.fromkeys(relation for group in groups.values() for relation in group.relations)
    kinds_of = {
        relation: tuple(kind for kind in groups if relation in groups[kind].relations) for relation in relations
    }
    rows = []
    for own_kinds in dict.fromkeys(kinds_of.values()):
        own = [relation for relation, of in kinds_of.items() if of == own_kinds]
        which = "" if len(own) == len(kinds_of) else relations_text(own)
        apart = "; ".join(part for part in (line.apart, which) if part)
        rows.append(replace(line, apart=apart, groups={kind: groups[kind].among(own) for kind in own_kinds}))
    return rows


def relations_text(relations: Sequence[str]) -> str:
    """Return the relations' names, or how many there are."""
    return f"{len(relations)} relations" if len(relations) > _NAMED_RELATIONS else ", ".join(relations)


def _place(row: Line) -> tuple[Any, ...]:
    known = _FIRST_SOURCES.index(row.source) if row.source in _FIRST_SOURCES else len(_FIRST_SOURCES)
    return row.fact_set, row.lm, known, row.source, row.extras, row.apart


def _row_finder(runs: Sequence[KeptRun]) -> Callable[[KeptRun], Line]:
    """Finds the row of a run, without its groups; different data under the same names are told apart."""
    number_of_lm = _numbered(runs, lambda run: run.spec.lm, lambda run: run.spec.lm_sha256)
    number_of_facts = _numbered(runs, lambda run: run.spec.relation, lambda run: run.spec.facts_sha256)
    number_of_prompts = _numbered(runs, lambda run: (run.spec.relation, run.spec.lm, run.spec.prompts), _templates)
    candidates, answers = defaultdict(set), defaultdict(set)
    for run in runs:
        candidates[run.fact_set, run.spec.lm].add(run.spec.candidates_sha256)
        answers[run.fact_set, run.spec.lm].add(run.spec.mixture.answers)

    def row_of(run: KeptRun) -> Line:
        spec, apart = run.spec, []
        lm = spec.lm if not number_of_lm(run) else f"{spec.lm} (another LM of that name, {spec.lm_sha256[:6]})"
        if number := number_of_facts(run):
            apart.append(f"other facts, {number + 1}")
        if number := number_of_prompts(run):
            apart.append(f"other templates, {number + 1}")
        if len(candidates[run.fact_set, spec.lm]) > 1:
            apart.append(f"among {spec.candidates or 'all answers'}")
        if len(answers[run.fact_set, spec.lm]) > 1 and spec.mixture.answers in _ANSWERS:
            apart.append(_ANSWERS[spec.mixture.answers])
        return Line(run.fact_set, lm, source_of(spec), kind_of(spec).extras, "; ".join(apart))

    return row_of


def _numbered(
    runs: Iterable[KeptRun], within: Callable[[KeptRun], Hashable], value: Callable[[KeptRun], str]
) -> Callable[[KeptRun], int]:
    """Numbers the values that share a name: first the one with the most facts, then with the most prompts."""
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


def _split(kinds: _RunsByKind) -> dict[str, _RunsByKind]:
    """The runs of a row, split into a part for each way in which they were done, by what sets the part apart."""
    runs = [(kind, run, frozenset(how_of(run.spec).items())) for kind, of_kind in kinds.items() for run in of_kind]
    if not runs:
        return {}
    ways = {(kind, how) for kind, _, how in runs}
    has_twins = len({(kind, how, run.spec.relation, run.spec.seed) for kind, run, how in runs}) < len(runs)
    if len(ways) == len({kind for kind, _, _ in runs}) and not has_twins:
        return {"": kinds}
    parts: dict[Any, _RunsByKind] = defaultdict(lambda: defaultdict(list))
    for kind, run, how in runs:
        parts[how, run.spec.setting if has_twins else ""][kind].append(run)
    names = {
        part: " / ".join(sorted({run.spec.setting for of_kind in inside.values() for run in of_kind}))
        for part, inside in parts.items()
    }
    hows = [how for _, how in ways]
    differing = sorted({choice for choice, _ in frozenset().union(*hows) - frozenset.intersection(*hows)})
    counts = Counter(names.values())
    for part, name in names.items():
        if counts[name] > 1:
            how = dict(part[0])
            told = ", ".join(f"{choice} {how[choice]}" for choice in differing if how.get(choice) is not None)
            names[part] = f"{name}: {told}"
    return {names[part]: parts[part] for part in sorted(parts, key=lambda part: names[part])}


def caption_of(
    name: str, groups: Sequence[RunGroup], average: Average | None = "micro", *, spread: bool = True, **filling: Any
) -> tuple[str, ...]:
    """Return the sentences of the caption of a table whose cells are these groups; `spread` says whether it shows
    deviations over seeds."""
    runs = [run for group in groups for run in group.runs]
    what = what_it_shows(name, **filling)
    averaged = "" if average is None else TEXTS["averages"][average]
    scored = (ranked_among(runs), _unsettled(groups), averaged, _seeds(groups, spread=spread), _trained_unlike(runs))
    return tuple(sentence for sentence in (what, _facts(groups), *scored) if sentence)


def what_it_shows(name: str, **filling: Any) -> str:
    """How the caption of a table or figure begins; the units of its scores are those of the metrics."""
    return TEXTS[name]["what"].format(units=units_of(TABLE_METRICS), **filling)


def ranked_among(runs: Iterable[KeptRun]) -> str:
    """The answers that y was ranked among, which every caption of a score names."""
    vocabularies = dict.fromkeys(run.record.test.vocabulary for run in runs)
    return f"Ranked among {'; '.join(vocabularies)}. Other right answers for the same x are skipped in all ranks."


def _facts(groups: Sequence[RunGroup]) -> str:
    sets = sorted({run.fact_set for group in groups for run in group.runs})
    relations = {relation for group in groups for relation in group.relations}
    asked, left_out = span([group.facts for group in groups]), span([group.left_out for group in groups])
    return (
        f"Facts: {', '.join(sets)}, {len(relations)} relation{'s' if len(relations) != 1 else ''}; {asked} test facts "
        f"asked, {left_out} left out{' (by row and column)' if ' to ' in asked + left_out else ''}."
    )


def _unsettled(groups: Sequence[RunGroup]) -> str:
    """For how many facts a search was cut before the rank of y was known, and what that may change."""
    figures = [[run.figures for run in group.runs if run.figures.unsettled] for group in groups]
    counts = [sum(of_run.unsettled for of_run in of_group) for of_group in figures]
    if not any(counts):
        return ""
    where = " (by row and column)" if len({*counts}) > 1 else ""
    most = max(of.micro["P@1"] - (of.at_worst or {}).get("P@1", 0.0) for of_group in figures for of in of_group)
    return (
        f"The search for answers was cut for {span(counts)} facts{where}, which count with their ranks among what was "
        f"found; the P@1 of a run may be lower by at most {most:.1f}."
    )


def _seeds(groups: Sequence[RunGroup], *, spread: bool) -> str:
    seeds = sorted({run.spec.seed for group in groups for run in group.runs})
    listed = f"Seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}."
    if several := sorted({len(group.seeds) for group in groups if len(group.seeds) > 1}):
        deviation = ", ± their standard deviation" if spread else ""
        counts = " or ".join(map(str, several))
        listed += f" A figure is the mean over its seeds{deviation}, where there are several ({counts})."
    if any(len(group.seeds) < len(runs) for group in groups for runs in group.by_relation.values()):
        listed += " Some relations have more seeds than others: each relation counts with its own mean."
    return listed


def _trained_unlike(runs: Sequence[KeptRun]) -> str:
    """How the tuned runs of a table differ, apart from what rows and columns show."""
    hows = [how_of(run.spec) for run in runs if run.spec.training is not None]
    told = []
    for choice in dict.fromkeys(choice for how in hows for choice in how):
        values = list(dict.fromkeys(how.get(choice) for how in hows))
        if len(values) > 1:
            told.append(
                f"{choice} {', '.join('default' if value is None else visible(str(value)) for value in values)}"
            )
    return f"The runs were not all tuned in the same way: {'; '.join(told)}." if told else ""


def groups_of(lines: Iterable[Line], kinds: Sequence[str]) -> list[RunGroup]:
    """Return the groups of the cells that a table shows."""
    return [group for line in lines for kind in kinds if (group := line.group(kind)) is not None]


def span(numbers: Sequence[int]) -> str:
    """The smallest and the largest of some numbers, or the only one."""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


FIELDS = (
    "facts", "lm", "prompts", "kind", "figure", "average", "value", "deviation", "seeds", "relations", "test_facts",
    "left_out", "gain", "p", "paper",
)  # fmt: skip
"""The columns of a table as CSV, with one row per figure."""

Record = Mapping[str, Any]


def record(line: Line, kind: str, figure: str, value: float | None, **more: Any) -> Record:
    """A figure of a cell, with everything that identifies it; a field that does not apply is None."""
    found = dict.fromkeys(FIELDS) | {"facts": line.fact_set, "lm": line.lm, "prompts": line.label, "kind": kind}
    if (group := line.group(kind)) is not None:
        counts = {"seeds": len(group.seeds), "relations": len(group.relations)}
        found |= counts | {"test_facts": group.facts, "left_out": group.left_out}
    return found | {"figure": figure, "value": value} | more


ScoredCell = tuple[Cell, Record]
"""A figure as it is shown, and for machines."""


def scored(line: Line, kind: str, metric: str, average: Average = "micro", **more: float | None) -> ScoredCell:
    """A score of a cell, a dash if there is no run; `more` can be `gain` and `p`, and the `paper`'s figure."""
    if (group := line.group(kind)) is None:
        return MISSING, record(line, kind, metric, None, average=average, **more)
    score = group.score(metric, average)
    found = record(line, kind, metric, score.mean, average=average, deviation=score.deviation, **more)
    return Cell(score.text), found


@dataclass(frozen=True, repr=False)
class StudyTable(ShowsItself):
    """A table, its name in files and its title, and its content as plain figures."""

    kind: str
    """What the table is called in the texts."""
    name: str
    title: str
    table: Table
    caption: tuple[str, ...]
    """The sentences of the table's caption."""
    records: tuple[Record, ...]

    def summary(self) -> Document:
        """Return the table under its title."""
        return Document(self.title, sections=(Section("", (self.table,)),))

    def as_json(self) -> dict[str, Any]:
        """Its title, caption and figures."""
        return {"title": self.title, "caption": self.table.caption, "figures": [dict(r) for r in self.records]}


@dataclass
class Draft:
    """A table in the making: its rows, and the figures in them."""

    rows: list[Row] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    def add(
        self, heading: str, figures: Sequence[ScoredCell], *, begins: str = "", note: str = "", of_paper: str = ""
    ) -> None:
        """Adds a row, and below it the paper's figures if there are any; `of_paper` is a note on these."""
        self.rows.append(Row(heading, tuple(cell for cell, _ in figures), begins, note))
        self.records += [record for _, record in figures]
        theirs = [record["paper"] for _, record in figures]
        if any(figure is not None for figure in theirs):
            self.rows.append(Row("the paper", tuple(map(one_decimal, theirs)), note=of_paper, pale=True))

    def finished(
        self,
        name: str,
        fact_set: str,
        columns: Sequence[ColumnGroup],
        caption: tuple[str, ...],
        *,
        file: str = "",
        **filling: Any,
    ) -> StudyTable:
        """Return the table of that name; its file can have another one."""
        title = f"{fact_set}: {TEXTS[name]['title'].format(**filling)}"
        table = Table(" ".join(caption), TEXTS[name]["corner"], tuple(columns), tuple(self.rows))
        return StudyTable(name, file or file_stem(name, fact_set), title, table, caption, tuple(self.records))


def file_stem(*parts: str) -> str:
    """Parts as a name that any file system accepts."""
    return "-".join("".join(char if char.isalnum() or char in "_." else "-" for char in part) for part in parts)
