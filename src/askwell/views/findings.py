"""What was found in the runs of a set of facts: sentences, a chart of told and withheld facts, a table by relation, and
some answers.

Nothing here knows which settings a sweep had: the best tuned prompts of an LM are compared with its best untuned ones,
and all prompts with themselves before tuning, whatever the outcome.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from scipy.stats import fisher_exact

from askwell.data.testbed import PREFIXES, is_told
from askwell.evaluation.comparison import Difference
from askwell.evaluation.knowledge import MAJORITY
from askwell.evaluation.metrics import units_of
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.scoring import FEW, doubt
from askwell.evaluation.significance import SIGNIFICANT
from askwell.runs.run_group import RunGroup
from askwell.views.charts import Gap, gaps_chart
from askwell.views.document import (
    Cell,
    Column,
    ColumnGroup,
    Drawing,
    Paragraph,
    Points,
    Row,
    Section,
    Table,
    headed,
    one_decimal,
)
from askwell.views.printable import NONE, counted, listed, shortened, signed
from askwell.views.run_facts import answer_cell
from askwell.views.scores import how_sure
from askwell.views.study_cells import DEEP, INIT, SOFT, WEIGHTS, change_of, place_of
from askwell.views.study_rows import TEXTS, Line, StudyCell, file_stem, ranked_among
from askwell.views.trust_figures import TOLD, WITHHELD, CellTrust, known_parts

MOST_FREQUENT = "most frequent answer of train"
_MOST_RELATIONS, _MOST_CELLS, _QUESTIONS, _LONGEST_LABEL = 8, 24, 5, 60
Parts = Mapping[str, Sequence[Outcome]]


@dataclass(frozen=True)
class FoundCell(StudyCell):
    """A cell, and how far its score can be trusted if it was tuned."""

    trust: CellTrust | None = None

    @property
    def quoted(self) -> str:
        """Its label in a sentence; a prompt that was typed is in quotation marks already."""
        return self.label if "“" in self.label else f"“{self.label}”"

    @property
    def score(self) -> float:
        """Its P@1, over all facts."""
        return self.group.score("P@1").mean

    @cached_property
    def parts(self) -> Parts:
        """Its outcomes of told and of withheld facts, where that is known."""
        return (
            _told_parts(one for of_seed in self.group.outcomes.values() for one in of_seed)
            if self.group.has_outcomes
            else {}
        )

    def shares(self, relations: Collection[str] | None = None) -> list[float | None]:
        """Return its P@1 on told and on withheld facts of some or all relations, or on all facts where that is not
        known."""
        if self.parts:
            return _shares(self.parts, relations)
        return [(self.group if relations is None else self.group.among(relations)).score("P@1").mean]

    def was_asked(self, relations: Collection[str]) -> bool:
        """Tell whether it was asked about all of these relations."""
        return {*relations} <= {*self.group.relations}


def _told_parts(outcomes: Iterable[Outcome]) -> Parts:
    return known_parts([*outcomes]).get("told", {})


def _shares(parts: Parts, relations: Collection[str] | None) -> list[float | None]:
    return [_share(parts.get(part, ()), relations) for part in (TOLD, WITHHELD)]


def _share(outcomes: Sequence[Outcome], relations: Collection[str] | None) -> float | None:
    of = [outcome.rank <= 1 for outcome in outcomes if relations is None or outcome.relation in relations]
    return 100 * sum(of) / len(of) if of else None


@dataclass(frozen=True)
class LMFindings:
    """The cells of one LM on one set of facts."""

    lm: str
    cells: tuple[FoundCell, ...]

    def _merit(self, cell: FoundCell) -> tuple[int, float]:
        return len(cell.group.relations), self.score(cell)

    @property
    def merit(self) -> tuple[int, float]:
        """About how many relations its best prompts were asked, and their P@1."""
        return self._merit(self.best)

    @property
    def best_tuned(self) -> FoundCell | None:
        """The tuned prompts with the highest P@1, of those asked about the most relations."""
        return max((cell for cell in self.cells if cell.kind != INIT), key=self._merit, default=None)

    @property
    def best_untuned(self) -> FoundCell | None:
        """The untuned prompts with the highest P@1, on the same relations as the best tuned ones."""
        tuned = self.best_tuned
        relations = None if tuned is None else tuned.group.relations
        untuned = (cell for cell in self.cells if cell.kind == INIT and relations in (None, cell.group.relations))
        return max(untuned, key=self._merit, default=None)

    @property
    def best(self) -> FoundCell:
        """The best tuned prompts, or the best ones where none were tuned."""
        return self.best_tuned or max(self.cells, key=self._merit)

    @cached_property
    def sentences(self) -> list[str]:
        """What was found, the most important first."""
        return [
            *self._by_way(),
            *self._tuned_or_not(),
            *self._few(),
            *self._told(),
            *self._steps(INIT, SOFT, "Tuning the same prompts"),
            *self._steps(INIT, SOFT, "Fitting the weights of the same prompts", fitted=True),
            *self._steps(INIT, WEIGHTS, "Tuning nothing but their weights"),
            *self._steps(SOFT, DEEP, "Tuning all layers rather than the first"),
            *self._control(),
        ]

    @cached_property
    def _are_parted(self) -> bool:
        """Whether it is known for all cells which facts the LM was told; only these count then."""
        return all(cell.parts.get(TOLD) for cell in self.cells)

    def score(self, cell: FoundCell) -> float:
        """Return its P@1, of told facts alone where these are known for all cells."""
        told = cell.shares()[0] if self._are_parted else None
        return cell.score if told is None else told

    def _change(self, before: RunGroup | None, after: RunGroup | None) -> Difference | None:
        return change_of(before, after, "P@1", (lambda one: is_told(*one.key)) if self._are_parted else None)

    @cached_property
    def _rivals(self) -> list[FoundCell]:
        """The cells that were asked about the same relations as the best one, from the lowest score to the highest."""
        same = [cell for cell in self.cells if cell.group.relations == self.best.group.relations]
        return sorted(same, key=self.score)

    @property
    def facts_text(self) -> str:
        """Of how many facts its scores are."""
        best = self.best
        if self._are_parted:
            return f"{counted(len(best.parts[TOLD]) // len(best.group.outcomes), 'fact')} that it was told"
        return counted(best.group.facts, "test fact")

    def _by_way(self) -> list[str]:
        """Return how much depends on the way of asking, where several ways were tried."""
        worst, best = self._rivals[0], self._rivals[-1]
        low, high = self.score(worst), self.score(best)
        if len({cell.line for cell in self._rivals}) == 1 or not round(high - low, 1):
            return []
        return [
            f"Of {self.facts_text}, {self.lm} answers from {low:.1f} % to {high:.1f} % correctly, depending on how it "
            f"is asked: least with {worst.quoted}, most with {best.quoted}."
        ]

    def _tuned_or_not(self) -> list[str]:
        tuned, untuned, best = self.best_tuned, self.best_untuned, self.best
        is_said = bool(self._by_way())
        who = "It" if is_said else f"Of {self.facts_text}, {self.lm}"
        answers = f"{who} answers {self.score(best):.1f} % correctly"
        if tuned is None or untuned is None:
            return [] if is_said else [f"{answers}, asked with {best.label}."]
        kept, has_fitted = tuned.group.kept, tuned.group.has_fitted_weights
        if kept and not has_fitted:
            return [f"{answers} with prompts that were kept {kept}: no step of tuning was better on dev facts."]
        what = "fitting weights" if has_fitted or tuned.kind == WEIGHTS else "tuning"
        step = self._change(untuned.group, tuned.group)
        verdict = _verdict(step, self.score(tuned) - self.score(untuned), what)
        of_tuned, of_untuned = self._best_of(tuned), self._best_of(untuned)
        prompts = f"prompts kept {kept}" if has_fitted else "tuned prompts"
        others = "the same untuned" if of_tuned == of_untuned else f"untuned ones ({of_untuned})"
        why = " No step of tuning their vectors was better on dev facts." if has_fitted else ""
        return [f"{answers} with {prompts} ({of_tuned}), {self.score(untuned):.1f} % with {others}: {verdict}.{why}"]

    def _few(self) -> list[str]:
        """Return how little so few facts show, if they are few."""
        best = self._rivals[-1]
        facts = len(best.parts[TOLD]) // len(best.group.outcomes) if self._are_parted else best.group.facts
        if facts >= FEW:
            return []
        of = TOLD if self._are_parted else "test"
        return [f"{doubt(round(self.score(best) / 100 * facts), facts, of)}."]

    def _best_of(self, cell: FoundCell) -> str:
        of = sum((other.kind == INIT) == (cell.kind == INIT) for other in self._rivals)
        name = cell.line.label if cell.kind in (INIT, SOFT) else cell.label
        return name if of == 1 else f"{name}; the best of {of}"

    def _told(self) -> list[str]:
        cell, other = self.best, self.best_untuned
        if not all(cell.parts.get(part) for part in (TOLD, WITHHELD)):
            return []
        told, withheld = (share or 0.0 for share in cell.shares())
        beside = (
            f"; {other.quoted}, {_percentage(other.shares()[1])}" if other not in (None, cell) and other.parts else ""
        )
        if (of_control := self.most_frequent()) is not None:
            beside += f"; always giving the most frequent answer of train, {_percentage(of_control[1])}"
        verdict = f"The {told - withheld:.1f} points between told and withheld facts come from what the LM was told."
        if _told_p(cell.parts) >= SIGNIFICANT or told <= withheld:
            verdict = "It is not clearly better on told facts: everything that it gets right may be a guess."
        return [
            "A right answer to a withheld fact, which appears nowhere in the LM's text and follows from nothing in it, "
            f"is a guess: {cell.quoted} gets {_percentage(withheld)} of them right{beside}. {verdict}"
        ]

    def _steps(self, before: str, after: str, what: str, *, fitted: bool = False) -> list[str]:
        """Return where a step from one kind to the next helped, hurt, or made no clear difference; with `fitted`, where
        all that was found in it is weights."""
        found: dict[str, list[str]] = {}
        compared: list[Line] = []
        for line in dict.fromkeys(cell.line for cell in self.cells):
            first, second = line.group(before), line.group(after)
            step = self._change(first, second)
            if first is None or second is None or step is None or second.has_fitted_weights != fitted:
                continue
            compared.append(line)
            verdict = "makes no clear difference to"
            if math.isnan(step.p):
                verdict = "changes, untested since single answers before tuning are not kept,"
            elif step.is_clear:
                verdict = "clearly helps" if step.difference > 0 else "hurts"
            scores = (self.score(FoundCell(line, kind, of)) for kind, of in ((before, first), (after, second)))
            found.setdefault(verdict, []).append(f"{line.label} ({' → '.join(f'{score:.1f}' for score in scores)})")
        tuned, untuned = self.best_tuned, self.best_untuned
        is_headline = tuned is not None and untuned is not None and tuned.line == untuned.line and before == INIT
        if not found or (is_headline and tuned.kind == after and compared == [tuned.line]):
            return []
        verdicts = (f"{verdict} {listed(found[verdict])}" for verdict in sorted(found))
        return [f"{what} {'; it '.join(verdicts)}."]

    def _control(self) -> list[str]:
        tuned = self.best_tuned
        if tuned is None or tuned.trust is None or (knowledge := tuned.trust.knowledge) is None:
            return []
        gain = knowledge.gain
        points = f"{abs(gain):.1f} points {'above' if gain >= 0 else 'below'}"
        return [
            f"On all test facts, answers that need no knowledge score {knowledge.control_score:.1f} at best; "
            f"{tuned.quoted} is {points} them{'' if knowledge.is_there else ', which may be chance'}."
        ]

    def most_frequent(self, relations: Collection[str] | None = None) -> list[float | None] | None:
        """Return what the most frequent answers of train score, as `FoundCell.shares`; None if that was not kept."""
        cell, outcomes = self.best_tuned, self._of_control
        if cell is None or outcomes is None:
            return None
        return _shares(_told_parts(outcomes), relations) if cell.parts else [_share(outcomes, relations)]

    @property
    def control(self) -> tuple[float, int] | None:
        """The P@1 of the most frequent answers of train on all test facts, and how many these are; None if that was
        not kept."""
        cell, score = self.best_tuned, _share(self._of_control or (), None)
        return None if cell is None or score is None else (score, cell.group.facts)

    @property
    def _of_control(self) -> list[Outcome] | None:
        cell = self.best_tuned
        if cell is None or any("test" not in run.controls.get(MAJORITY, {}) for run in cell.group.firsts):
            return None
        return [outcome for run in cell.group.firsts for outcome in run.controls[MAJORITY]["test"]]


def _verdict(step: Difference | None, difference: float, what: str) -> str:
    gain = difference if step is None else step.difference
    points = f"{signed(gain)} points"
    if not round(gain, 1):
        return "neither is better"
    if step is None or math.isnan(step.p):
        return f"{what} {'gains' if gain > 0 else 'makes a difference of'} {points}"
    if not step.is_clear:
        changed = f"{counted(step.changed, 'fact')} {'changes' if step.changed == 1 else 'change'}"
        return f"the difference of {points} may be chance ({changed}; {how_sure(step)}, paired permutation test)"
    better = f"{what} helps" if gain > 0 else "the untuned prompts are better"
    return f"{better}, a difference of {points} ({how_sure(step)}, paired permutation test)"


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
    trusted = {(one.line, one.kind): one for one in trust}
    for line in lines:
        cells = by_lm.setdefault(line.lm, {})
        for kind in sorted({INIT, *line.groups}, key=place_of):
            if (group := line.group(kind)) is not None:
                ids = frozenset(f"{kind} {run.spec.id}" for run in group.runs)
                cells.setdefault(ids, FoundCell(line, kind, group, trusted.get((line, kind))))
    return [LMFindings(lm, tuple(cells.values())) for lm, cells in by_lm.items()]


def finding_points(findings: Sequence[LMFindings]) -> tuple[Paragraph, list[Points]]:
    """Return the most important sentence, and then the others on each LM."""
    first = max(findings, key=lambda found: found.merit)
    others = [found for found in findings if found is not first]
    # Of LMs that were asked about other relations, none is said to be the best.
    is_best = all(
        found.best.group.relations == first.best.group.relations and found.merit < first.merit for found in others
    )
    said = {found.lm: list(found.sentences) for found in (first, *others)}
    headline = said[first.lm].pop(0)
    if others and is_best:
        headline = f"Of {len(findings)} LMs, {first.lm} scores highest. {headline}"
    return Paragraph(headline), [Points(tuple(of), lm if others else "") for lm, of in said.items() if of]


def summary_table(by_set: Mapping[str, Sequence[LMFindings]]) -> Table:
    """Return a row for each set of facts and LM: the P@1 of its best untuned and of its best tuned prompts."""
    rows = []
    for fact_set, findings in by_set.items():
        for number, found in enumerate(findings):
            cells = [None if cell is None else found.score(cell) for cell in (found.best_untuned, found.best_tuned)]
            shown = (*map(one_decimal, cells), Cell(found.facts_text))
            rows.append(Row(found.lm, shown, begins="" if number else fact_set))
    columns = (Column("untuned"), Column("tuned"), Column("of", number=False))
    return Table("P@1 in per cent of the best prompts of either kind.", "LM", (ColumnGroup("", columns),), tuple(rows))


def told_drawings(fact_set: str, findings: Sequence[LMFindings]) -> list[Drawing]:
    """Return a chart for each LM of which it is known which facts it was told."""
    drawings = []
    for found in findings:
        shares = [(cell.label, cell.shares()) for cell in found.cells]
        gaps = [Gap(shortened(label, _LONGEST_LABEL), both[0], both[1]) for label, both in shares if len(both) == 2]
        if not gaps:
            continue
        if (of_control := found.most_frequent()) is not None and len(of_control) == 2:
            gaps.append(Gap(MOST_FREQUENT, of_control[0], of_control[1], aside=True))
        chart = gaps_chart(gaps[:_MOST_CELLS], first="told", second="withheld", measure=f"P@1 {units_of(['P@1'])}")
        heading = found.lm if len(findings) > 1 else ""
        drawings.append(Drawing(file_stem("told", fact_set, found.lm), chart, heading, TEXTS["told"]["what"]))
    return drawings


def relation_tables(findings: Sequence[LMFindings], *, in_short: bool = False) -> list[Table]:
    """Return P@1 of every cell by relation, on told and withheld facts where that is known; nothing if it would have
    too many relations, or say no more than the scores of the set. In short, it is of told and withheld facts of all
    relations together."""
    cells = [cell for found in findings for cell in found.cells]
    relations = sorted({relation for cell in cells for relation in cell.group.relations})
    parts = max((len(cell.shares()) for cell in cells), default=1)
    each = [[relation] for relation in relations]
    shown = [relations] if in_short or len(each) == 1 else [*each, relations]
    if len(shown) * parts == 1 or len(shown) > _MOST_RELATIONS + 1:
        return []
    names = ["" if in_short else _bare(of[0]) if len(of) == 1 else "all" for of in shown]
    groups = [ColumnGroup(name, _part_columns(cells, of, parts)) for name, of in zip(names, shown, strict=True)]
    nothing: list[float | None] = [None] * parts
    rows = []
    for found, begins in headed(findings, lambda found: found.lm):
        shares = [[cell.shares(of) if cell.was_asked(of) else nothing for of in shown] for cell in found.cells]
        figures = [[one for of in of_cell for one in (of if len(of) == parts else nothing)] for of_cell in shares]
        # The best figure of withheld facts, which can only be guessed, is of no merit.
        best = [
            None if number % parts else max((one for one in column if one is not None), default=None)
            for number, column in enumerate(zip(*figures, strict=True))
        ]
        for number, (cell, of_cell) in enumerate(zip(found.cells, figures, strict=True)):
            shown_figures = (one_decimal(one, strong=one == top) for one, top in zip(of_cell, best, strict=True))
            rows.append(Row(cell.label, tuple(shown_figures), "" if number else begins))
        if found.most_frequent() is not None:
            of_control = (one_decimal(one) for of in shown for one in found.most_frequent(of) or nothing)
            rows.append(Row(MOST_FREQUENT, tuple(of_control), note="no LM at all", pale=True))
    sentences = [TEXTS["by_relation"]["what"], *([TEXTS["told"]["parts"]] if parts == 2 else [])]
    caption = " ".join([*sentences, ranked_among(run for cell in cells for run in cell.group.runs)])
    return [Table(caption, "prompts", tuple(groups), tuple(rows))]


def _part_columns(cells: Sequence[FoundCell], relations: Collection[str], parts: int) -> tuple[Column, ...]:
    if parts == 1:
        return (Column("P@1"),)
    columns = []
    for part in (TOLD, WITHHELD):
        counts = {
            sum(outcome.relation in relations for outcome in cell.parts.get(part, ())) // len(cell.group.seeds)
            for cell in cells
            if cell.parts and cell.group.seeds and cell.was_asked(relations)
        }
        columns.append(Column(part, f"of {counts.pop()}" if len(counts) == 1 else "", pale=part == WITHHELD))
    return tuple(columns)


def some_answers(findings: Sequence[LMFindings]) -> list[Section]:
    """Return what the best untuned and the best tuned prompts of an LM answer to some test facts."""
    sections = []
    for found in findings:
        cells = [
            cell for cell in (found.best_untuned, found.best_tuned) if cell is not None and cell.group.has_outcomes
        ]
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
            known = [is_told(relation, x, gold) for gold in golds]
            shown.append(Cell(TOLD if all(known) else "in part" if any(known) else WITHHELD))
        rows.append(
            Row(x, (*shown, *(answer_cell(of_cell[x]) for of_cell in answers)), "" if number else _bare(relation))
        )
    return rows


def _bare(relation: str) -> str:
    """Return the name of a relation without its set."""
    return re.split(r"[:/]", relation, maxsplit=1)[-1]
