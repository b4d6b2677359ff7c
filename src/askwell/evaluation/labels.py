"""Answers chosen among a few: how well each label is distinguished from the others, and K, how many pairs of a right
and a wrong candidate are ranked correctly."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from askwell.evaluation.outcomes import Outcome
from askwell.views.document import Document, Section, Table, table
from askwell.views.printable import NONE, counted
from askwell.views.to_text import ShowsItself

MOST_LABELS = 30
"""With more labels, a confusion table says less than the scores do."""
_WIDTH_OF_LABELS = 40  # what is left of 80 characters beside the scores


@dataclass(frozen=True)
class LabelScores:
    """How well one label is recognised, in per cent."""

    facts: int
    """Facts that have this label."""
    chosen: int
    """Facts for which it was chosen."""
    precision: float | None
    """Of the facts for which it was chosen, how many have it; None if it was never chosen."""
    recall: float | None
    """Of the facts that have it, for how many it was chosen; None if no fact has it."""
    f1: float | None
    """The harmonic mean of both; None if no fact has it and it was never chosen."""


@dataclass(frozen=True, repr=False)
class LabelFigures(ShowsItself):
    """Scores of each label, and which label was chosen in place of which."""

    labels: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    """The number of facts for each right label (rows) and chosen label (columns)."""
    scores: dict[str, LabelScores]
    macro_f1: float
    """The mean F1 over labels that some fact has or that were chosen for one, in per cent."""

    def table(self) -> Table:
        """Return precision, recall and F1 of each label, and the confusion table, or its most frequent errors if that
        is too wide."""
        in_columns = sum(len(label) + 6 for label in self.labels) <= _WIDTH_OF_LABELS
        chosen = [f"→ {label}" for label in self.labels] if in_columns else ["taken for"]
        numbers = ("facts", "precision", "recall", "F1")
        rows = []
        for label, row in zip(self.labels, self.confusion, strict=True):
            scores = self.scores[label]
            figures = (NONE if one is None else f"{one:.1f}" for one in (scores.precision, scores.recall, scores.f1))
            wrong = ", ".join(f"{other} ({count})" for other, count in list(self.taken_for(label).items())[:3])
            rows.append((label, str(scores.facts), *figures, *(map(str, row) if in_columns else [wrong])))
        return table(("", *numbers, *chosen), rows, numbers=(*numbers, *(chosen if in_columns else ())), title="Labels")

    def summary(self) -> Document:
        """Summarise how well each label is recognised, and what it was taken for."""
        heading = f"Macro F1 {self.macro_f1:.1f} over {counted(len(self.labels), 'label')}"
        return Document(heading, sections=(Section("", (replace(self.table(), title=""),)),))

    def taken_for(self, label: str) -> dict[str, int]:
        """Return the wrong labels that were chosen in place of this one, the most frequent first."""
        row = dict(zip(self.labels, self.confusion[self.labels.index(label)], strict=True))
        return {other: row[other] for other in sorted(row, key=lambda one: -row[one]) if row[other] and other != label}


def label_figures(
    outcomes: Sequence[Outcome], labels: Sequence[str], label_of: Callable[[str], str | None]
) -> LabelFigures | None:
    """Compute the figures of facts whose answers were chosen among labels; None if there are more than MOST_LABELS.

    `label_of` gives the label of a y. As in ranks, the other right labels of a fact's x are skipped: the chosen label
    is the best of the rest.
    """
    if len(labels) > MOST_LABELS:
        return None
    place = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    confusion = [[0] * len(place) for _ in place]
    for outcome in outcomes:
        gold = label_of(outcome.y)
        others = {label_of(y) for y in outcome.golds} - {gold}
        chosen = next((answer for answer in outcome.answers if answer not in others), None)
        if gold is not None and chosen is not None:
            confusion[place[gold]][place[chosen]] += 1
    return figures_of(tuple(place), confusion)


def figures_of(labels: Sequence[str], confusion: Sequence[Sequence[int]]) -> LabelFigures:
    """Compute all figures that follow from a confusion table."""
    scores = {}
    for number, label in enumerate(labels):
        right, facts, chosen = confusion[number][number], sum(confusion[number]), sum(row[number] for row in confusion)
        scores[label] = LabelScores(
            facts, chosen, _per_cent(right, chosen), _per_cent(right, facts), _per_cent(2 * right, facts + chosen)
        )
    known = [score.f1 for score in scores.values() if score.f1 is not None]
    return LabelFigures(tuple(labels), tuple(map(tuple, confusion)), scores, fmean(known) if known else 0.0)


def added(figures: Sequence[LabelFigures | None]) -> LabelFigures | None:
    """Add up the figures of several evaluations; None if they were not all among the same labels."""
    known = [one for one in figures if one is not None]
    if not known or len(known) < len(figures) or len({one.labels for one in known}) > 1:
        return None
    rows = zip(*(one.confusion for one in known), strict=True)
    return figures_of(known[0].labels, [[sum(cells) for cells in zip(*row, strict=True)] for row in rows])


def _per_cent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


# ── pairs of a right and a wrong candidate ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class RankedPairs:
    """How well right candidates are told from wrong ones, in per cent."""

    facts: int
    """Facts that have a wrong candidate."""
    pairs: int
    """Pairs of a fact's y and a candidate that is wrong for its x."""
    share: float
    """K: the mean over facts of the share of their wrong candidates that are less probable than y, half for ties."""
    all_of_fact: float
    """K*: the share of facts of which all wrong candidates are less probable than y."""


def ranked_pairs(
    outcomes: Sequence[Outcome], labels: Sequence[str], label_of: Callable[[str], str | None]
) -> RankedPairs | None:
    """Compute K and K* from ranks among the labels; None if no fact has a wrong candidate.

    `label_of` gives the label of a y. Ranks leave out the other right answers of x, and count a tie as half, so they
    hold the number of wrong candidates that are more probable than y.
    """
    every, shares, pairs = set(labels), [], 0
    for outcome in outcomes:
        wrong = len(every - {label_of(gold) for gold in (*outcome.golds, outcome.y)})
        if wrong:
            shares.append(1 - (outcome.rank - 1) / wrong)
            pairs += wrong
    if not shares:
        return None
    return RankedPairs(len(shares), pairs, 100 * fmean(shares), 100 * fmean(share == 1 for share in shares))


def pairs_together(found: Sequence[RankedPairs | None]) -> RankedPairs | None:
    """Combine the figures of several evaluations as means over all their facts; None if one has none."""
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return None
    facts = sum(one.facts for one in known)
    share = sum(one.share * one.facts for one in known) / facts
    all_of_fact = sum(one.all_of_fact * one.facts for one in known) / facts
    return RankedPairs(facts, sum(one.pairs for one in known), share, all_of_fact)
