"""What was found in the runs of a set of facts: sentences that say what the figures say, a chart, and some answers.

Nothing here knows which settings a sweep had: the best tuned prompts of an LM are compared with its best untuned ones,
and all prompts with themselves before tuning, whatever the outcome.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from scipy.stats import fisher_exact

from askwell.data.facts import Fact
from askwell.data.testbed import PREFIX, told_facts
from askwell.evaluation.controls import MAJORITY
from askwell.evaluation.metrics import units_of
from askwell.evaluation.outcomes import Outcome
from askwell.views.charts import Gap, gaps_chart
from askwell.views.document import (
    MISSING,
    Block,
    Cell,
    Column,
    ColumnGroup,
    Figure,
    Key,
    Points,
    Row,
    Section,
    Table,
    headed,
)
from askwell.views.printable import NONE, counted, listed, per_cent, signed
from askwell.views.study_cells import DEEP, INIT, SOFT, RunGroup, Step, change_of, place_of
from askwell.views.study_figures import StudyFigure
from askwell.views.study_rows import TEXTS, Line, file_stem, ranked_among
from askwell.views.trust_figures import TOLD, WITHHELD, CellTrust, known_parts

CHANCE = 0.05
"""From this p-value on, a difference may be chance."""
_KINDS = {INIT: "untuned", SOFT: "tuned", DEEP: "tuned at all layers"}
_MOST_RELATIONS, _MOST_CELLS, _QUESTIONS, _LONGEST_LABEL = 8, 24, 5, 27
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
        return self.kind != INIT or INIT in self.line.groups

    @cached_property
    def parts(self) -> Parts:
        """Its outcomes of told and of withheld facts, where that is known."""
        return known_parts(self._outcomes()).get("told", {}) if self.has_outcomes else {}

    def _outcomes(self) -> list[Outcome]:
        return [outcome for of_seed in self.group.outcomes.values() for outcome in of_seed]

    def shares(self, relation: str | None = None) -> list[float | None]:
        """Its P@1 on told and on withheld facts of one relation or all, or on all facts where that is not known."""
        if not self.parts:
            return [self.score if relation is None else self.group.among([relation]).score("P@1").mean]
        return [_share(self.parts.get(part, ()), relation) for part in (TOLD, WITHHELD)]


def _bare(relation: str) -> str:
    """The name of a relation without its set."""
    return re.split(r"[:/]", relation, maxsplit=1)[-1]


def _share(outcomes: Sequence[Outcome], relation: str | None = None) -> float | None:
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
        """What was found, the most important first."""
        return [
            *self._headline(),
            *self._steps(INIT, SOFT, "Tuning the same prompts"),
            *self._told(),
            *self._steps(SOFT, DEEP, "Tuning all layers rather than the first"),
            *self._control(),
        ]

    def _headline(self) -> list[str]:
        tuned, untuned = self.best_tuned, self.best_untuned
        only = tuned or untuned
        if only is None:
            return []
        if tuned is None or untuned is None:
            facts = counted(only.group.facts, "test fact")
            return [f"{self.lm} answers {only.score:.1f} % of {facts} correctly, asked with {only.label}."]
        facts = counted(tuned.group.facts, "test fact")
        first = (
            f"{self.lm} answers {tuned.score:.1f} % of {facts} correctly with tuned prompts ({self._best_of(tuned)}), "
            f"{untuned.score:.1f} % with untuned ones ({self._best_of(untuned)})"
        )
        return [f"{first}: {_verdict(change_of(untuned.group, tuned.group, 'P@1'), tuned, untuned)}."]

    def _best_of(self, cell: FoundCell) -> str:
        of = sum((other.kind == INIT) == (cell.kind == INIT) for other in self.cells)
        name = cell.line.label if cell.kind in (INIT, SOFT) else cell.label
        return name if of == 1 else f"{name}; the best of {of}"

    def _told(self) -> list[str]:
        cell, other = self.best_tuned or self.best_untuned, self.best_untuned
        if cell is None or not all(cell.parts.get(part) for part in (TOLD, WITHHELD)):
            return []
        of_told, of_withheld = cell.shares()
        others = {f"“{other.label}”": other.shares()} if other not in (None, cell) and other.parts else {}
        if (of_control := self.most_frequent()) is not None:
            others["always giving the most frequent answer of train"] = of_control
        beside = "".join(f"; {name}, {' and '.join(map(_percentage, shares))}" for name, shares in others.items())
        said = [
            "Withheld facts appear nowhere in the LM's text and follow from nothing in it, so a right answer to them "
            f"is a guess, not knowledge. “{cell.label}” gets {_percentage(of_told)} of told facts right and "
            f"{_percentage(of_withheld)} of withheld ones{beside}."
        ]
        gap = (of_told or 0.0) - (of_withheld or 0.0)
        if _told_p(cell.parts) >= CHANCE or gap <= 0:
            said.append("It is not clearly better on told facts: everything that it gets right may be a guess.")
        else:
            said.append(f"The {gap:.1f} points between told and withheld facts come from what the LM was told.")
        return said

    def _steps(self, before: str, after: str, what: str) -> list[str]:
        """Where a step from one kind to the next helped, hurt, or made no clear difference."""
        groups: dict[str, list[str]] = {"clearly helps": [], "makes no clear difference to": [], "hurts": []}
        for line in dict.fromkeys(cell.line for cell in self.cells):
            step = change_of(line.group(before), line.group(after), "P@1")
            if step is None:
                continue
            verdict = "makes no clear difference to"
            if step.p is not None and step.p < CHANCE:
                verdict = "clearly helps" if step.gain > 0 else "hurts"
            scores = (line.group(kind) for kind in (before, after))
            first, second = (0.0 if group is None else group.score("P@1").mean for group in scores)
            groups[verdict].append(f"{line.label} ({first:.1f} → {second:.1f})")
        found = {verdict: names for verdict, names in groups.items() if names}
        tuned, untuned = self.best_tuned, self.best_untuned
        is_headline = tuned is not None and untuned is not None and tuned.line == untuned.line and before == INIT
        if not found or (is_headline and sum(map(len, found.values())) == 1):
            return []
        return [f"{what} {'; it '.join(f'{verdict} {listed(names)}' for verdict, names in found.items())}."]

    def _control(self) -> list[str]:
        tuned = self.best_tuned
        of_best = [
            one
            for one in self.trust
            if tuned is not None and (one.line.label, one.kind) == (tuned.line.label, tuned.kind)
        ]
        if not of_best or of_best[0].knowledge is None:
            return []
        gain = of_best[0].knowledge.gain
        chance = "" if of_best[0].knowledge.is_there else ", which may be chance"
        return [
            f"Answers that need no knowledge score {gain.control_score:.1f} at best; "
            f"“{tuned.label if tuned else ''}” is {_points_above(gain.gain)} them{chance}."
        ]

    def most_frequent(self, relation: str | None = None) -> list[float | None] | None:
        """Return what the most frequent answers of train score, as `FoundCell.shares`; None if that was not kept."""
        cell = self.best_tuned
        if cell is None:
            return None
        runs = cell.group.firsts
        if any("test" not in run.controls.get(MAJORITY, {}) for run in runs):
            return None
        outcomes = [outcome for run in runs for outcome in run.controls[MAJORITY]["test"]]
        if not cell.parts:
            return [_share(outcomes, relation)]
        parts = known_parts(outcomes).get("told", {})
        return [_share(parts.get(part, ()), relation) for part in (TOLD, WITHHELD)]


def _verdict(step: Step | None, tuned: FoundCell, untuned: FoundCell) -> str:
    gain = tuned.score - untuned.score if step is None else step.gain
    points = f"{signed(gain)} points"
    if step is None or step.p is None:
        return f"tuning {'gains' if gain > 0 else 'makes a difference of'} {points}"
    p = "p < 0.001" if step.p < 0.001 else f"p = {step.p:.3f}"
    if not round(gain, 1):
        return "tuning makes no difference"
    if step.p >= CHANCE:
        return f"the difference of {points} may be chance ({p}, paired permutation test)"
    better = "tuning helps" if gain > 0 else "the untuned prompts are better"
    return f"{better}, a difference of {points} ({p}, paired permutation test)"


def _points_above(gain: float) -> str:
    return f"{gain:.1f} points above" if gain >= 0 else f"{-gain:.1f} points below"


def _percentage(share: float | None) -> str:
    return NONE if share is None else f"{share:.1f} %"


def _told_p(parts: Parts) -> float:
    """The p-value of Fisher's exact test: told against withheld facts."""
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


def headlines(findings: Sequence[LMFindings]) -> Points:
    """Return the most important sentence on each LM."""
    return Points(tuple(said[0] for found in findings if (said := found.sentences())))


def details(findings: Sequence[LMFindings]) -> list[Points]:
    """Return the other sentences on each LM."""
    return [
        Points(tuple(said), found.lm if len(findings) > 1 else "")
        for found in findings
        if (said := found.sentences()[1:])
    ]


def found_blocks(findings: Sequence[LMFindings], figures: Sequence[Figure]) -> list[Block]:
    """Return what was found: in a sentence, in a chart, in further sentences and in a table."""
    return [headlines(findings), *figures[:1], *details(findings), *by_relation(findings), *figures[1:]]


TOLD_KEYS = (Key("told in the text", "first", "dot"), Key("withheld from it", "second", "diamond"))


def told_figures(fact_set: str, findings: Sequence[LMFindings]) -> list[StudyFigure]:
    """Return a chart for each LM of which it is known which facts it was told."""
    figures = []
    for found in findings:
        gaps = [
            Gap(_shortened(cell.label), shares[0], shares[1])
            for cell in found.cells
            if len(shares := cell.shares()) == 2
        ]
        if not gaps:
            continue
        if (of_control := found.most_frequent()) is not None and len(of_control) == 2:
            gaps.append(Gap("most frequent answer", of_control[0], of_control[1], aside=True))
        chart = gaps_chart(gaps[:_MOST_CELLS], first="told", second="withheld", measure=f"P@1 {units_of(['P@1'])}")
        figures.append(StudyFigure(file_stem("told", fact_set, found.lm), found.lm, (TEXTS["told"]["what"],), chart))
    return figures


def _shortened(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…"


def by_relation(findings: Sequence[LMFindings]) -> list[Table]:
    """Return P@1 of every cell by relation, on told and withheld facts where that is known; nothing if it would have
    too many relations, or say no more than the scores of the set."""
    cells = [(found, cell) for found in findings for cell in found.cells]
    relations = sorted({relation for _, cell in cells for relation in cell.group.relations})
    parts = max((len(cell.shares()) for _, cell in cells), default=1)
    if len(relations) > _MOST_RELATIONS or len(relations) * parts < 2:
        return []
    shown: list[str | None] = [*relations, *([None] if len(relations) > 1 else [])]
    groups = [
        ColumnGroup(_bare(relation) if relation else "all", _part_columns(cells, relation, parts)) for relation in shown
    ]
    rows = []
    for found, begins in headed(findings, lambda found: found.lm):
        best = _best_columns(found, shown, parts)
        for number, cell in enumerate(found.cells):
            figures = [share for relation in shown for share in _shares_of(cell, relation, parts)]
            texts = tuple(
                MISSING if figure is None else Cell(f"{figure:.1f}", strong=figure == top)
                for figure, top in zip(figures, best, strict=True)
            )
            rows.append(Row(cell.label, texts, "" if number else begins))
        if found.most_frequent() is not None:
            controls = [share for relation in shown for share in found.most_frequent(relation) or [None] * parts]
            texts = tuple(MISSING if share is None else Cell(f"{share:.1f}") for share in controls)
            rows.append(Row("most frequent answer of train", texts, note="no LM at all", pale=True))
    runs = (run for _, cell in cells for run in cell.group.runs)
    caption = f"{TEXTS['by_relation']['what']} {TEXTS['told']['parts'] if parts == 2 else ''}"
    return [Table(f"{caption.strip()} {ranked_among(runs)}", "prompts", tuple(groups), tuple(rows))]


def _part_columns(
    cells: Sequence[tuple[LMFindings, FoundCell]], relation: str | None, parts: int
) -> tuple[Column, ...]:
    if parts == 1:
        return (Column("P@1"),)
    columns = []
    for part in (TOLD, WITHHELD):
        counts = {
            sum(relation in (None, outcome.relation) for outcome in cell.parts.get(part, ())) // len(cell.group.seeds)
            for _, cell in cells
            if cell.parts and cell.group.seeds
        }
        columns.append(Column(part, f"of {counts.pop()}" if len(counts) == 1 else "", pale=part == WITHHELD))
    return tuple(columns)


def _shares_of(cell: FoundCell, relation: str | None, parts: int) -> list[float | None]:
    if relation is not None and relation not in cell.group.relations:
        return [None] * parts
    shares = cell.shares(relation)
    return shares if len(shares) == parts else [None] * parts


def _best_columns(found: LMFindings, shown: Sequence[str | None], parts: int) -> list[float | None]:
    """The best figure of each column; that of withheld facts, which can only be guessed, is of no merit."""
    best: list[float | None] = []
    for relation in shown:
        of_cells = [_shares_of(cell, relation, parts) for cell in found.cells]
        told_ones = [shares[0] for shares in of_cells if shares[0] is not None]
        best += [max(told_ones, default=None), *[None] * (parts - 1)]
    return best


def some_answers(findings: Sequence[LMFindings]) -> list[Section]:
    """Return what the best untuned and the best tuned prompts of an LM answer to some test facts."""
    sections = []
    for found in findings:
        untuned, tuned = found.best_untuned, found.best_tuned
        cells = [cell for cell in (untuned, tuned) if cell is not None and cell.has_outcomes]
        if not cells or len(cells[-1].group.relations) > _MOST_RELATIONS:
            continue
        is_testbed = all(relation.startswith(PREFIX) for relation in cells[-1].group.relations)
        rows = [row for relation in cells[-1].group.relations for row in _answer_rows(cells, relation, is_testbed)]
        names = ("right answer", *(["in the text"] if is_testbed else []), *(cell.label for cell in cells))
        columns = tuple(Column(name, number=False) for name in names)
        table = Table(TEXTS["answers"]["what"], "x", (ColumnGroup("", columns),), tuple(rows))
        where = f" of {found.lm}" if len(findings) > 1 else ""
        sections.append(Section(f"Some answers{where}", (table,)))
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
            known = [Fact(x, gold) in told_facts(relation.removeprefix(PREFIX)) for gold in golds]
            shown.append(Cell(TOLD if all(known) else WITHHELD if not any(known) else "in part"))
        rows.append(Row(x, (*shown, *(_answer(of_cell[x]) for of_cell in answers)), "" if number else _bare(relation)))
    return rows


def _answer(outcome: Outcome) -> Cell:
    if not outcome.answers:
        return MISSING
    mark = "right" if outcome.answers[0] in outcome.golds else "wrong"
    return Cell(outcome.answers[0], mark=mark, note=per_cent(outcome.probabilities[0]))
