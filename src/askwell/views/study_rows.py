"""The rows that all tables share, their captions, and their figures as plain records for machines.

A row is an LM, asked about a set of facts with prompts of one source in one way. Runs that differ in anything but
relation and seed never share a cell: what the kinds do not distinguish gets its own row, named by its settings or by
what differs.
"""

import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from askwell.evaluation.metrics import TABLE_METRICS, Average, units_of
from askwell.runs.run_group import KeptRun, RunGroup
from askwell.specs.mixture_spec import ANSWERS_IN_WORDS
from askwell.specs.run_spec import TYPED, PromptText, RunSpec
from askwell.views.document import MISSING, Cell, ColumnGroup, Row, Table, one_decimal
from askwell.views.printable import counted, visible
from askwell.views.study_cells import EM, INIT, extras_of, how_of, in_words, kind_of, place_of, source_of


def read_texts(name: str) -> dict[str, Any]:
    """Return the content of a TOML file of this room."""
    return tomllib.loads(files("askwell.views").joinpath(name).read_text(encoding="utf-8"))


TEXTS: dict[str, dict[str, Any]] = read_texts("texts.toml")
"""The texts of tables and figures, by name."""
_FIRST_SOURCES = ("single", "manual", "mined", "paraphrased")
"""What rows say where a report has both."""
_NAMED_RELATIONS = 3


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

    def part(self, apart: str, groups: Mapping[str, RunGroup]) -> "Line":
        """Return a row of these groups alone, and what sets it apart from the others of this row."""
        return replace(self, apart="; ".join(filter(None, (self.apart, apart))), groups=groups)


@dataclass(frozen=True)
class StudyCell:
    """Prompts of one source, as they were asked in one way: a row's runs of one kind."""

    line: Line
    kind: str
    group: RunGroup

    @property
    def label(self) -> str:
        """What it is, in words."""
        return f"{self.line.label}, {in_words(self.kind, self.group)}"


def prompts_text(spec: RunSpec) -> str:
    """Return what the prompts of a run are called."""
    return _typed_text(spec.templates) if spec.prompts == TYPED else spec.prompts


def _source(spec: RunSpec) -> str:
    source = source_of(spec)
    return _typed_text(spec.templates) if source == TYPED else source


def _typed_text(templates: Sequence[PromptText]) -> str:
    """Return what prompts that were typed are called: the only one itself, or how many there are."""
    return f"“{templates[0].template}”" if len(templates) == 1 else counted(len(templates), "prompt")


def lines_of(runs: Sequence[KeptRun]) -> list[Line]:
    """Return all rows, by set of facts, LM and source."""
    rows: dict[Line, list[KeptRun]] = defaultdict(list)
    for run, row in zip(runs, _rows_of(runs), strict=True):
        rows[row].append(run)
    lines = []
    for row in sorted(rows, key=_place):
        # How a row is trained does not affect what it starts from.
        plain = replace(row, extras=tuple(extra for extra in row.extras if extra != EM))
        untuned = _split(_untuned(rows[row]) or _untuned(rows.get(plain, [])))
        tuned = _split([run for run in rows[row] if run.spec.training is not None])
        if len(untuned) == 1:
            (start,) = untuned.values()
            parts = [(apart, start + of_part) for apart, of_part in (tuned or {"": []}).items()]
        else:
            parts = [*tuned.items(), *untuned.items()]
        lines += [row.part(apart, _by_kind(of_part)) for apart, of_part in parts]
    return lines


def _untuned(runs: Iterable[KeptRun]) -> list[KeptRun]:
    return [run for run in runs if run.spec.training is None]


def _by_kind(runs: Iterable[KeptRun]) -> dict[str, RunGroup]:
    kinds = defaultdict(list)
    for run in runs:
        kinds[kind_of(run.spec)].append(run)
    return {kind: RunGroup(tuple(kinds[kind])) for kind in sorted(kinds, key=place_of)}


def _split(runs: Sequence[KeptRun]) -> dict[str, list[KeptRun]]:
    """Return the runs in parts, each done in one way, under names: the settings of a part, and where that is not enough
    the choices in which it differs from the others. Runs need no name if all of a kind were done in the same way."""
    choices = [frozenset(how_of(run.spec).items()) for run in runs]
    kinds = [kind_of(run.spec) for run in runs]
    cells = {(run.spec.relation, run.spec.seed, *done) for run, *done in zip(runs, kinds, choices, strict=True)}
    is_repeated = len(cells) < len(runs)  # the same run under several settings
    if not is_repeated and len({*zip(kinds, choices, strict=True)}) == len({*kinds}):
        return {"": [*runs]} if runs else {}
    parts: dict[tuple[frozenset[tuple[str, Any]], str], list[KeptRun]] = defaultdict(list)
    for run, chosen in zip(runs, choices, strict=True):
        parts[chosen, run.spec.setting if is_repeated else ""].append(run)
    settings = {part: " / ".join(sorted({run.spec.setting for run in of_part})) for part, of_part in parts.items()}
    counts, common = Counter(settings.values()), frozenset.intersection(*choices)
    named = {}
    for (chosen, setting), of_part in parts.items():
        name = settings[chosen, setting]
        if counts[name] > 1:
            different = (f"{choice} {value}" for choice, value in sorted(chosen - common) if value is not None)
            name = f"{name}: {', '.join(different)}"
        named[name] = of_part
    return dict(sorted(named.items()))


def same_facts(lines: Iterable[Line]) -> list[Line]:
    """Return the rows with all figures of a row on the same facts: where some kinds lack relations that others have, a
    row becomes several."""
    rows = []
    for line in lines:
        groups = line.groups
        by_kinds: dict[tuple[str, ...], list[str]] = defaultdict(list)
        relations = dict.fromkeys(relation for group in groups.values() for relation in group.relations)
        for relation in relations:
            by_kinds[tuple(kind for kind, group in groups.items() if relation in group.relations)].append(relation)
        for own_kinds, own in by_kinds.items():
            apart = "" if len(by_kinds) == 1 else relations_text(own)
            rows.append(line.part(apart, {kind: groups[kind].among(own) for kind in own_kinds}))
    return rows


def relations_text(relations: Sequence[str]) -> str:
    """Return the relations' names, or how many there are."""
    return f"{len(relations)} relations" if len(relations) > _NAMED_RELATIONS else ", ".join(relations)


def _place(row: Line) -> tuple[Any, ...]:
    known = _FIRST_SOURCES.index(row.source) if row.source in _FIRST_SOURCES else len(_FIRST_SOURCES)
    return row.fact_set, row.lm, known, row.source, row.extras, row.apart


def _rows_of(runs: Sequence[KeptRun]) -> list[Line]:
    """Return the row of each run, without groups; different data under the same names are told apart."""
    specs = [run.spec for run in runs]
    lms = _numbers(runs, [(spec.lm, spec.lm_sha256) for spec in specs])
    facts = _numbers(runs, [(f"{run.fact_set} {run.spec.relation}", run.spec.facts_sha256) for run in runs])
    sources = [_source(spec) for spec in specs]
    named = [f"{run.fact_set} {run.spec.lm} {source}" for run, source in zip(runs, sources, strict=True)]
    prompts = _numbers(
        runs, [(f"{name} {spec.relation}", str(spec.templates)) for name, spec in zip(named, specs, strict=True)]
    )
    candidates, answers, folds = defaultdict(set), defaultdict(set), defaultdict(set)
    for run in runs:
        candidates[run.fact_set, run.spec.lm].add(run.spec.candidates_sha256)
        answers[run.fact_set, run.spec.lm].add(run.spec.mixture.answers)
        folds[run.fact_set].add(len(run.folds))
    rows = []
    for run, spec, source, of_lm, of_facts, of_prompts in zip(runs, specs, sources, lms, facts, prompts, strict=True):
        apart = {
            f"other facts, {of_facts + 1}": of_facts > 0,
            f"other templates, {of_prompts + 1}": of_prompts > 0,
            f"among {spec.candidates or 'all answers'}": len(candidates[run.fact_set, spec.lm]) > 1,
            ANSWERS_IN_WORDS.get(spec.mixture.answers, ""): len(answers[run.fact_set, spec.lm]) > 1,
            f"{len(run.folds)} folds together": bool(run.folds) and len(folds[run.fact_set]) > 1,
        }
        lm = f"{spec.lm} (another LM of that name, {spec.lm_sha256[:6]})" if of_lm else spec.lm
        differences = "; ".join(name for name, applies in apart.items() if name and applies)
        rows.append(Line(run.fact_set, lm, source, extras_of(spec), differences))
    return rows


def _numbers(runs: Sequence[KeptRun], named: Sequence[tuple[str, str]]) -> list[int]:
    """Return the number of each run's data among those that share their name: 0 for those with the most facts, then
    with the most prompts."""
    sizes: dict[tuple[str, str], tuple[int, int]] = {}
    for run, data in zip(runs, named, strict=True):
        size = (run.facts + run.record.test.left_out_count, len(run.spec.templates))
        sizes[data] = max(size, sizes.get(data, size))
    ordered = sorted(sizes, key=lambda data: (-sizes[data][0], -sizes[data][1], data))
    same_name = {name: [data for data in ordered if data[0] == name] for name, _ in ordered}
    return [same_name[data[0]].index(data) for data in named]


def caption_of(name: str, groups: Sequence[RunGroup], *, spread: bool = True, **filling: Any) -> str:
    """Return the caption of a table whose cells are these groups; `spread` says whether it shows deviations over
    seeds."""
    runs = [run for group in groups for run in group.runs]
    sentences = (
        what_it_shows(name, **filling),
        _facts(groups),
        ranked_among(runs),
        _unsettled(groups),
        _seeds(groups, spread=spread),
        _trained_unlike(runs),
    )
    return " ".join(filter(None, sentences))


def what_it_shows(name: str, **filling: Any) -> str:
    """Return how the caption of a table or figure begins; the units of its scores are those of the metrics."""
    return TEXTS[name]["what"].format(units=units_of(TABLE_METRICS), **filling)


def ranked_among(runs: Iterable[KeptRun]) -> str:
    """Return the answers that y was ranked among, which every caption of a score names."""
    vocabularies = dict.fromkeys(run.record.test.vocabulary for run in runs)
    return f"Ranked among {'; '.join(vocabularies)}. Other right answers for the same x are skipped in all ranks."


def _facts(groups: Sequence[RunGroup]) -> str:
    sets = sorted({run.fact_set for group in groups for run in group.runs})
    relations = {relation for group in groups for relation in group.relations}
    folds = {len(run.folds) for group in groups for run in group.runs}
    together = f" of {folds.pop()} folds together" if len(folds) == 1 and folds != {0} else ""
    asked, left_out = span([group.facts for group in groups]), span([group.left_out for group in groups])
    return (
        f"Facts: {', '.join(sets)}, {counted(len(relations), 'relation')}; {asked} test facts{together} asked, "
        f"{left_out} left out{' (by row and column)' if ' to ' in asked + left_out else ''}."
    )


def _unsettled(groups: Sequence[RunGroup]) -> str:
    """Return for how many facts a search was cut before the rank of y was known, and what that may change."""
    figures = [[run.record.test for run in group.runs if run.record.test.unsettled] for group in groups]
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
    """Return how the tuned runs of a table differ, apart from what rows and columns show."""
    hows = [how_of(run.spec) for run in runs if run.spec.training is not None]
    different = []
    for choice in dict.fromkeys(choice for how in hows for choice in how):
        values = dict.fromkeys(how.get(choice) for how in hows)
        if len(values) > 1:
            shown = ("default" if value is None else visible(str(value)) for value in values)
            different.append(f"{choice.replace('_', '-')}: {' or '.join(shown)}")
    return f"The runs were not all tuned in the same way ({'; '.join(different)})." if different else ""


def groups_of(lines: Iterable[Line], kinds: Sequence[str]) -> list[RunGroup]:
    """Return the groups of the cells that a table shows."""
    return [group for line in lines for kind in kinds if (group := line.group(kind)) is not None]


def span(numbers: Sequence[int]) -> str:
    """Return the smallest and the largest of some numbers, or the only one."""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


FIELDS = (
    "facts", "lm", "prompts", "kind", "figure", "average", "value", "deviation", "seeds", "relations", "test_facts",
    "left_out", "gain", "p", "paper",
)  # fmt: skip
"""The columns of a table as CSV, with one row per figure."""

Record = Mapping[str, Any]


def record(line: Line, kind: str, figure: str, value: float | None, **more: Any) -> Record:
    """Return a figure of a cell, with everything that identifies it; a field that does not apply is None."""
    found = dict.fromkeys(FIELDS) | {"facts": line.fact_set, "lm": line.lm, "prompts": line.label, "kind": kind}
    if (group := line.group(kind)) is not None:
        counts = {"seeds": len(group.seeds), "relations": len(group.relations)}
        found |= counts | {"test_facts": group.facts, "left_out": group.left_out}
    return found | {"figure": figure, "value": value} | more


ScoredCell = tuple[Cell, Record]
"""A figure as it is shown, and for machines."""


def scored(line: Line, kind: str, metric: str, average: Average = "micro", **more: float | None) -> ScoredCell:
    """Return a score of a cell, a dash if there is no run; `more` can be `gain` and `p`, and the `paper`'s figure."""
    if (group := line.group(kind)) is None:
        return MISSING, record(line, kind, metric, None, average=average, **more)
    score = group.score(metric, average)
    found = record(line, kind, metric, score.mean, average=average, deviation=score.deviation, **more)
    return Cell(score.text(metric)), found


@dataclass(frozen=True)
class StudyTable:
    """A table, its name in files and its title, and its content as plain figures."""

    kind: str
    """What the table is called in the texts."""
    name: str
    title: str
    table: Table
    records: tuple[Record, ...]

    def as_json(self) -> dict[str, Any]:
        """Return its title, caption and figures."""
        return {"title": self.title, "caption": self.table.caption, "figures": [dict(r) for r in self.records]}


@dataclass
class Draft:
    """A table in the making: its rows, and the figures in them."""

    rows: list[Row] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    def add(
        self, heading: str, figures: Sequence[ScoredCell], *, begins: str = "", note: str = "", of_paper: str = ""
    ) -> None:
        """Add a row, and below it the paper's figures if there are any; `of_paper` is a note on these."""
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
        caption: str,
        *,
        file: str = "",
        **filling: Any,
    ) -> StudyTable:
        """Return the table of that name; its file can have another one."""
        title = TEXTS[name]["title"].format(**filling)
        table = Table(caption, TEXTS[name]["corner"], tuple(columns), tuple(self.rows))
        return StudyTable(name, file or file_stem(name, fact_set), title, table, tuple(self.records))


def file_stem(*parts: str) -> str:
    """Return parts as a name that any file system accepts."""
    return "-".join("".join(char if char.isalnum() or char in "_." else "-" for char in part) for part in parts)
