"""What was found in the runs of a set of facts: sentences, a chart of told and withheld facts, a table by relation, and
some answers.

Nothing here knows which settings a sweep had: the best tuned prompts of an LM are compared with its best untuned ones,
and all prompts with themselves before tuning, whatever the outcome.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from scipy.stats import fisher_exact

from askwell.data.facts import Fact
from askwell.data.testbed import PREFIXES, told_facts
from askwell.evaluation.knowledge import MAJORITY
from askwell.evaluation.metrics import units_of
from askwell.evaluation.outcomes import Outcome
from askwell.views.charts import Gap, gaps_chart
from askwell.views.document import (
    Cell,
    Column,
    ColumnGroup,
    Drawing,
    Points,
    Row,
    Section,
    Table,
    headed,
    one_decimal,
)
from askwell.views.printable import NONE, counted, listed, shortened, signed
from askwell.views.run_facts import answer_cell
from askwell.views.study_cells import DEEP, INIT, SOFT, RunGroup, Step, change_of, place_of
from askwell.views.study_rows import TEXTS, Line, file_stem, ranked_among
from askwell.views.trust_figures import TOLD, WITHHELD, CellTrust, known_parts

_CHANCE = 0.05
"""From this p-value on, a difference may be chance."""
_KINDS = {INIT: "untuned", SOFT: "tuned", DEEP: "tuned at all layers"}
_MOST_RELATIONS, _MOST_CELLS, _QUESTIONS, _LONGEST_LABEL = 8, 24, 5, 46
Parts = Mapping[str, Sequence[Outcome]]


@dataclass(frozen=True)
class FoundCell:
    """Prompts of one source, as they were asked in one way."""

    line: Line
    kind: str
    group: RunGroup

    @property
    def label(self) -> str:
        """What it is, in words."""
        return f"{self.line.label}, {_KINDS.get(self.kind, self.kind)}"

    @property
    def score(self) -> float:
        """Its P@1, over all facts."""
        return self.group.score("P@1").mean

    @property
    def has_outcomes(self) -> bool:
        """Whether the answers to its facts are known, and not only the score."""
        return not self.group.runs[0].is_before

    @cached_property
    def parts(self) -> Parts:
        """Its outcomes of told and of withheld facts, where that is known."""
        return (
            _told_parts(one for of_seed in self.group.outcomes.values() for one in of_seed) if self.has_outcomes else {}
        )

    def shares(self, relation: str | None = None) -> list[float | None]:
        """Return its P@1 on told and on withheld facts of one relation or all, or on all facts where that is not
        known."""
        if self.parts:
            return _shares(self.parts, relation)
        return [self.score if relation is None else self.group.among([relation]).score("P@1").mean]


def _told_parts(outcomes: Iterable[Outcome]) -> Parts:
    return known_parts([*outcomes]).get("told", {})


def _shares(parts: Parts, relation: str | None) -> list[float | None]:
    return [_share(parts.get(part, ()), relation) for part in (TOLD, WITHHELD)]


def _share(outcomes: Sequence[Outcome], relation: str | None) -> float | None:
    of = [outcome.rank <= 1 for outcome in outcomes if relation in (None, outcome.relation)]
    return 100 * sum(of) / len(of) if of else None


@dataclass(frozen=True)
class LMFindings:
    """The cells of one LM on one set of facts, and how far the tuned ones can be trusted."""

    lm: str
    cells: tuple[FoundCell, ...]
    trust: tuple[CellTrust, ...]

    @property
    def best_tuned(self) -> FoundCell | None:
        """The tuned prompts with the highest P@1."""
        return max((cell for cell in self.cells if cell.kind != INIT), key=lambda cell: cell.score, default=None)

    @property
    def best_untuned(self) -> FoundCell | None:
        """The untuned prompts with the highest P@1, on the same relations as the best tuned ones."""
        tuned = self.best_tuned
        relations = None if tuned is None else tuned.group.relations
        untuned = (cell for cell in self.cells if cell.kind == INIT and relations in (None, cell.group.relations))
        return max(untuned, key=lambda cell: cell.score, default=None)

    def sentences(self) -> list[str]:
        """Return what was found, the most important first."""
        return [
            *self._headline(),
            *self._steps(INIT, SOFT, "Tuning the same prompts"),
            *self._told(),
            *self._steps(SOFT, DEEP, "Tuning all layers rather than the first"),
            *self._control(),
        ]

    def _headline(self) -> list[str]:
        tuned, untuned = self.best_tuned, self.best_untuned
        best = tuned or untuned
        if best is None:
            return []
        answers = f"{self.lm} answers {best.score:.1f} % of {counted(best.group.facts, 'test fact')} correctly"
        if tuned is None or untuned is None:
            return [f"{answers}, asked with {best.label}."]
        verdict = _verdict(change_of(untuned.group, tuned.group, "P@1"), tuned.score - untuned.score)
        return [
            f"{answers} with tuned prompts ({self._best_of(tuned)}), {untuned.score:.1f} % with untuned ones "
            f"({self._best_of(untuned)}): {verdict}."
        ]

    def _best_of(self, cell: FoundCell) -> str:
        of = sum((other.kind == INIT) == (cell.kind == INIT) for other in self.cells)
        name = cell.line.label if cell.kind in (INIT, SOFT) else cell.label
        return name if of == 1 else f"{name}; the best of {of}"

    def _told(self) -> list[str]:
        other = self.best_untuned
        cell = self.best_tuned or other
        if cell is None or not all(cell.parts.get(part) for part in (TOLD, WITHHELD)):
            return []
        told, withheld = (share or 0.0 for share in cell.shares())
        others = {f"“{other.label}”": other.shares()} if other not in (None, cell) and other.parts else {}
        if (of_control := self.most_frequent()) is not None:
            others["always giving the most frequent answer of train"] = of_control
        beside = "".join(f"; {name}, {' and '.join(map(_percentage, shares))}" for name, shares in others.items())
        said = (
            "Withheld facts appear nowhere in the LM's text and follow from nothing in it, so a right answer to them "
            f"is a guess, not knowledge. “{cell.label}” gets {_percentage(told)} of told facts right and "
            f"{_percentage(withheld)} of withheld ones{beside}."
        )
        if _told_p(cell.parts) >= _CHANCE or told <= withheld:
            return [said, "It is not clearly better on told facts: everything that it gets right may be a guess."]
        gap = f"The {told - withheld:.1f} points between told and withheld facts come from what the LM was told."
        return [said, gap]

    def _steps(self, before: str, after: str, what: str) -> list[str]:
        """Return where a step from one kind to the next helped, hurt, or made no clear difference."""
        found: dict[str, list[str]] = {"clearly helps": [], "makes no clear difference to": [], "hurts": []}
        for line in dict.fromkeys(cell.line for cell in self.cells):
            first, second = line.group(before), line.group(after)
            step = change_of(first, second, "P@1")
            if first is None or second is None or step is None:
                continue
            verdict = "makes no clear difference to"
            if step.p is not None and step.p < _CHANCE:
                verdict = "clearly helps" if step.gain > 0 else "hurts"
            scores = " → ".join(f"{group.score('P@1').mean:.1f}" for group in (first, second))
            found[verdict].append(f"{line.label} ({scores})")
        found = {verdict: names for verdict, names in found.items() if names}
        tuned, untuned = self.best_tuned, self.best_untuned
        is_headline = tuned is not None and untuned is not None and tuned.line == untuned.line and before == INIT
        if not found or (is_headline and sum(map(len, found.values())) == 1):
            return []
        return [f"{what} {'; it '.join(f'{verdict} {listed(names)}' for verdict, names in found.items())}."]

    def _control(self) -> list[str]:
        tuned = self.best_tuned
        if tuned is None:
            return []
        cells = (one for one in self.trust if (one.line.label, one.kind) == (tuned.line.label, tuned.kind))
        knowledge = next((cell.knowledge for cell in cells), None)
        if knowledge is None:
            return []
        gain = knowledge.gain
        points = f"{abs(gain):.1f} points {'above' if gain >= 0 else 'below'}"
        return [
            f"Answers that need no knowledge score {knowledge.control_score:.1f} at best; “{tuned.label}” is "
            f"{points} them{'' if knowledge.is_there else ', which may be chance'}."
        ]

    def most_frequent(self, relation: str | None = None) -> list[float | None] | None:
        """Return what the most frequent answers of train score, as `FoundCell.shares`; None if that was not kept."""
        cell = self.best_tuned
        if cell is None or any("test" not in run.controls.get(MAJORITY, {}) for run in cell.group.firsts):
            return None
        outcomes = [outcome for run in cell.group.firsts for outcome in run.controls[MAJORITY]["test"]]
        return _shares(_told_parts(outcomes), relation) if cell.parts else [_share(outcomes, relation)]


def _verdict(step: Step | None, difference: float) -> str:
    gain = difference if step is None else step.gain
    points = f"{signed(gain)} points"
    if step is None or step.p is None:
        return f"tuning {'gains' if gain > 0 else 'makes a difference of'} {points}"
    p = "p < 0.001" if step.p < 0.001 else f"p = {step.p:.3f}"
    if not round(gain, 1):
        return "tuning makes no difference"
    if step.p >= _CHANCE:
        return f"the difference of {points} may be chance ({p}, paired permutation test)"
    better = "tuning helps" if gain > 0 else "the untuned prompts are better"
    return f"{better}, a difference of {points} ({p}, paired permutation test)"


def _percentage(share: float | None) -> str:
    return NONE if share is None else f"{share:.1f} %"


def _told_p(parts: Parts) -> float:
    """Return the p-value of Fisher's exact test: told against withheld facts."""
    right = {part: sum(outcome.rank <= 1 for outcome in parts[part]) for part in (TOLD, WITHHELD)}
    test = fisher_exact([[right[part], len(parts[part]) - right[part]] for part in (TOLD, WITHHELD)])
    return float(test.pvalue)


def findings_of(lines: Sequence[Line], trust: Sequence[CellTrust]) -> list[LMFindings]:
    """Return the findings on each LM; untuned prompts that several rows start from are one cell."""
    by_lm: dict[str, dict[frozenset[str], FoundCell]] = {}
    for line in lines:
        cells = by_lm.setdefault(line.lm, {})
        for kind in sorted({INIT, *line.groups}, key=place_of):
            if (group := line.group(kind)) is not None:
                ids = frozenset(f"{kind} {run.spec.id}" for run in group.runs)
                cells.setdefault(ids, FoundCell(line, kind, group))
    return [
        LMFindings(lm, tuple(cells.values()), tuple(one for one in trust if one.line.lm == lm))
        for lm, cells in by_lm.items()
    ]


def finding_points(findings: Sequence[LMFindings]) -> list[Points]:
    """Return the most important sentence on each LM, and then the other sentences on each."""
    said = {found.lm: found.sentences() for found in findings}
    details = [
        Points(tuple(of_lm[1:]), lm if len(findings) > 1 else "") for lm, of_lm in said.items() if len(of_lm) > 1
    ]
    return [Points(tuple(of_lm[0] for of_lm in said.values() if of_lm)), *details]


def told_drawings(fact_set: str, findings: Sequence[LMFindings]) -> list[Drawing]:
    """Return a chart for each LM of which it is known which facts it was told."""
    drawings = []
    for found in findings:
        shares = [(cell.label, cell.shares()) for cell in found.cells]
        gaps = [Gap(shortened(label, _LONGEST_LABEL), both[0], both[1]) for label, both in shares if len(both) == 2]
        if not gaps:
            continue
        if (of_control := found.most_frequent()) is not None and len(of_control) == 2:
            gaps.append(Gap("most frequent answer", of_control[0], of_control[1], aside=True))
        chart = gaps_chart(gaps[:_MOST_CELLS], first="told", second="withheld", measure=f"P@1 {units_of(['P@1'])}")
        drawings.append(Drawing(file_stem("told", fact_set, found.lm), chart, found.lm, TEXTS["told"]["what"]))
    return drawings


def relation_tables(findings: Sequence[LMFindings]) -> list[Table]:
    """Return P@1 of every cell by relation, on told and withheld facts where that is known; nothing if it would have
    too many relations, or say no more than the scores of the set."""
    cells = [cell for found in findings for cell in found.cells]
    relations = sorted({relation for cell in cells for relation in cell.group.relations})
    parts = max((len(cell.shares()) for cell in cells), default=1)
    if len(relations) > _MOST_RELATIONS or len(relations) * parts < 2:
        return []
    shown: list[str | None] = [*relations, *([None] if len(relations) > 1 else [])]
    groups = [
        ColumnGroup(_bare(relation) if relation else "all", _part_columns(cells, relation, parts)) for relation in shown
    ]
    rows = []
    for found, begins in headed(findings, lambda found: found.lm):
        shares = [[one for relation in shown for one in _shares_of(cell, relation, parts)] for cell in found.cells]
        # The best figure of withheld facts, which can only be guessed, is of no merit.
        best = [
            None if number % parts else max((one for one in column if one is not None), default=None)
            for number, column in enumerate(zip(*shares, strict=True))
        ]
        for number, (cell, of_cell) in enumerate(zip(found.cells, shares, strict=True)):
            figures = (one_decimal(one, strong=one == top) for one, top in zip(of_cell, best, strict=True))
            rows.append(Row(cell.label, tuple(figures), "" if number else begins))
        if found.most_frequent() is not None:
            of_control = (one for relation in shown for one in found.most_frequent(relation) or [None] * parts)
            figures = tuple(map(one_decimal, of_control))
            rows.append(Row("most frequent answer of train", figures, note="no LM at all", pale=True))
    sentences = [TEXTS["by_relation"]["what"], *([TEXTS["told"]["parts"]] if parts == 2 else [])]
    caption = " ".join([*sentences, ranked_among(run for cell in cells for run in cell.group.runs)])
    return [Table(caption, "prompts", tuple(groups), tuple(rows))]


def _part_columns(cells: Sequence[FoundCell], relation: str | None, parts: int) -> tuple[Column, ...]:
    if parts == 1:
        return (Column("P@1"),)
    columns = []
    for part in (TOLD, WITHHELD):
        counts = {
            sum(relation in (None, outcome.relation) for outcome in cell.parts.get(part, ())) // len(cell.group.seeds)
            for cell in cells
            if cell.parts and cell.group.seeds
        }
        columns.append(Column(part, f"of {counts.pop()}" if len(counts) == 1 else "", pale=part == WITHHELD))
    return tuple(columns)


def _shares_of(cell: FoundCell, relation: str | None, parts: int) -> list[float | None]:
    shares = cell.shares(relation) if relation in (None, *cell.group.relations) else []
    return shares if len(shares) == parts else [None] * parts


def some_answers(findings: Sequence[LMFindings]) -> list[Section]:
    """Return what the best untuned and the best tuned prompts of an LM answer to some test facts."""
    sections = []
    for found in findings:
        cells = [cell for cell in (found.best_untuned, found.best_tuned) if cell is not None and cell.has_outcomes]
        if not cells or len(cells[-1].group.relations) > _MOST_RELATIONS:
            continue
        relations = cells[-1].group.relations
        is_testbed = all(relation.startswith(PREFIXES) for relation in relations)
        rows = [row for relation in relations for row in _answer_rows(cells, relation, is_testbed)]
        names = ("right answer", *(["in the text"] if is_testbed else []), *(cell.label for cell in cells))
        columns = tuple(Column(name, number=False) for name in names)
        table = Table(TEXTS["answers"]["what"], "x", (ColumnGroup("", columns),), tuple(rows))
        sections.append(Section(f"Some answers{f' of {found.lm}' if len(findings) > 1 else ''}", (table,)))
    return sections


def _answer_rows(cells: Sequence[FoundCell], relation: str, is_testbed: bool) -> list[Row]:
    answers = [
        {outcome.x: outcome for run in cell.group.among([relation]).firsts for outcome in run.test} for cell in cells
    ]
    xs = [x for x in answers[-1] if all(x in of_cell for of_cell in answers)]
    rows = []
    for number, x in enumerate(xs[:: max(1, len(xs) // _QUESTIONS)][:_QUESTIONS]):
        golds = answers[-1][x].golds
        shown = [Cell(", ".join(golds))]
        if is_testbed:
            known = [Fact(x, gold) in told_facts(relation) for gold in golds]
            shown.append(Cell(TOLD if all(known) else "in part" if any(known) else WITHHELD))
        rows.append(
            Row(x, (*shown, *(answer_cell(of_cell[x]) for of_cell in answers)), "" if number else _bare(relation))
        )
    return rows


def _bare(relation: str) -> str:
    """Return the name of a relation without its set."""
    return re.split(r"[:/]", relation, maxsplit=1)[-1]
