"""What was found in the runs of a set of facts: sentences that say what the figures say.

Nothing here knows which settings a sweep had: the best tuned prompts of an LM are compared with its best untuned ones,
and all prompts with themselves before tuning, whatever the outcome.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from scipy.stats import fisher_exact

from askwell.evaluation.knowledge import MAJORITY
from askwell.evaluation.outcomes import Outcome
from askwell.views.printable import NONE, counted, listed, signed
from askwell.views.study_cells import DEEP, INIT, SOFT, RunGroup, Step, change_of, place_of
from askwell.views.study_rows import Line
from askwell.views.trust_figures import TOLD, WITHHELD, CellTrust, known_parts

CHANCE = 0.05
"""From this p-value on, a difference may be chance."""
_KINDS = {INIT: "untuned", SOFT: "tuned", DEEP: "tuned at all layers"}
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
        gain = of_best[0].knowledge
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
