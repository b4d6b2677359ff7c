"""Classification: how well each label is distinguished from the others, where answers are chosen among a few."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from askwell.evaluation.outcomes import Outcome
from askwell.views.document import Document, overview
from askwell.views.printable import counted
from askwell.views.to_text import ShowsItself

MOST_LABELS = 30
"""With more labels, a confusion table says less than the scores do."""


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

    def summary(self) -> Document:
        """Summarise precision, recall and F1 of each label, and what it was taken for."""
        columns = ("label", "facts", "precision", "recall", "F1", "taken for")
        rows = [
            (
                label,
                str(of_label.facts),
                *("–" if one is None else f"{one:.1f}" for one in (of_label.precision, of_label.recall, of_label.f1)),
                ", ".join(f"{other} ({count})" for other, count in self.taken_for(label).items()),
            )
            for label, of_label in self.scores.items()
        ]
        return overview(f"Macro F1 {self.macro_f1:.1f} over {counted(len(rows), 'label')}", columns, rows, columns[1:5])

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
