"""Evaluations: the outcomes of facts, the scores that follow from them, and those of parts of the facts (seen and
unseen ys, easy and hard facts)."""

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field

from askwell.answers.reply import LeftOutFact, RightAnswers, count_reasons
from askwell.data.facts import Fact, Relation, SplitName
from askwell.data.split_audit import is_inside
from askwell.evaluation.confidence import calibration, questions_of
from askwell.evaluation.labels import LabelFigures, RankedPairs, added, pairs_together
from askwell.evaluation.metrics import (
    LOG_LOSS,
    METRICS,
    RANK_METRICS,
    Average,
    Scores,
    by_relation,
    log_loss_of,
    macro,
    metric_named,
    scores_of,
    units_of,
)
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.significance import wilson_interval
from askwell.specs.mixture_spec import ANSWERS_IN_WORDS, AnswersName, Match
from askwell.views.document import Document, overview
from askwell.views.printable import counted
from askwell.views.to_files import AsFrame, Records
from askwell.views.to_text import ShowsItself

if TYPE_CHECKING:  # records of runs are read without torch
    from askwell.answers.encode import EncodedFacts
    from askwell.answers.strategy import Answers, Ranking

FEW = 30
"""With fewer facts, a score says little, so that its interval is shown with it."""


def doubt(right: int, fact_count: int, split: str = "test") -> str:
    """Say between which values P@1 lies for all that so few facts show."""
    low, high = wilson_interval(right, fact_count)
    return (
        f"{counted(fact_count, f'{split} fact')}: P@1 on more of them may lie anywhere between {100 * low:.1f} and "
        f"{100 * high:.1f} (95 % interval)"
    )


Progress = Callable[[int, int], None] | bool | None
"""A function that is called with the number of facts done and their total, or whether a terminal or notebook may show a
progress bar if it takes long."""


# ── parts of the facts ────────────────────────────────────────────────────────────────────────────────────────────────

_T = TypeVar("_T")
Parts = dict[str, list[Outcome]]
PartScores = dict[str, int | float]
"""The number of facts of a part, and their scores."""

SEEN, UNSEEN = "seen y", "unseen y"
INSIDE, NOT_INSIDE = "y in x", "y not in x"
EASY, HARD, NOT_ASKED = "easy", "hard", "no control"
TENS, WORDS = (1, 10, 100), (2, 3, 4)
"""The edges of parts by how many train lines have y, and by how many words, split at white space, a fact has."""
_FREQUENCIES = ("0", "1–9", "10–99", "100+")
_LENGTHS = ("1", "2", "3", "4+")


def parted(facts: Iterable[_T], label: Callable[[_T], str | None], order: Sequence[str] = ()) -> dict[str, list[_T]]:
    """Partition facts by their labels, in this order or sorted; those without a label are left out, and empty parts."""
    parts: dict[str, list[_T]] = defaultdict(list)
    for fact in facts:
        if (name := label(fact)) is not None:
            parts[name].append(fact)
    return {name: parts[name] for name in order or sorted(parts) if name in parts}


def label_of(count: int, edges: Sequence[int], labels: Sequence[str]) -> str:
    """Return the label of a count; each edge begins a part."""
    return labels[bisect_right(edges, count)]


def by_control(outcomes: Sequence[Outcome], controls: Sequence[Sequence[Outcome]]) -> Parts:
    """Partition outcomes into easy facts, which some control gets right (rank 1), and hard ones, which all get wrong.

    Facts that no control was asked about are a part of their own.
    """
    easy, asked = set(), set()
    for control in controls:
        for outcome in control:
            asked.add(outcome.key)
            if outcome.rank <= 1:
                easy.add(outcome.key)

    def label(outcome: Outcome) -> str:
        return EASY if outcome.key in easy else HARD if outcome.key in asked else NOT_ASKED

    return parted(outcomes, label, [EASY, HARD, NOT_ASKED])


def partitions_of(
    outcomes: Sequence[Outcome], relation: Relation, controls: Sequence[Sequence[Outcome]] = ()
) -> dict[str, Parts]:
    """Return all partitions of the outcomes of a relation by name: by control, if there are any, by whether and how
    often y occurs in train, by whether it is a part of x regardless of case (LAMA-UHN has those where it is not), and
    by the length of x."""
    lines = Counter(fact.y for fact in relation.train)

    by_ease = {"control": by_control(outcomes, controls)} if controls else {}
    return by_ease | {
        "seen y": parted(outcomes, lambda one: SEEN if one.y in lines else UNSEEN, [SEEN, UNSEEN]),
        "y in x": parted(outcomes, lambda one: [NOT_INSIDE, INSIDE][is_inside(one.y, one.x)], [INSIDE, NOT_INSIDE]),
        "frequency of y": parted(outcomes, lambda one: label_of(lines[one.y], TENS, _FREQUENCIES), _FREQUENCIES),
        "length of x": parted(outcomes, lambda one: label_of(len(one.x.split()), WORDS, _LENGTHS), _LENGTHS),
    }


def scores_of_parts(parts: Parts) -> dict[str, PartScores]:
    """Return the number of facts of each part, and their scores."""
    return {label: {"facts": len(outcomes), **scores_of(outcomes)} for label, outcomes in parts.items()}


# ── scores ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class LeftOut:
    """A fact that was not asked, and why."""

    x: str
    y: str
    reason: str


@dataclass(frozen=True)
class EvaluationFigures:
    """The scores of an evaluation, in the units of their metrics, with what they are scores of."""

    facts: int
    left_out: dict[str, int]
    """How many facts were not asked, by reason."""
    left_out_facts: tuple[LeftOut, ...]
    split: SplitName
    vocabulary: str
    """The answers that y was ranked among."""
    candidates_left_out: int
    micro: Scores
    """The mean over facts."""
    macro: Scores
    """The mean of the relations' means."""
    raw: dict[Average, Scores]
    """The same means where the other right answers of an x count as wrong ones."""
    log_loss: float | None
    """None if it is infinite."""
    relations: dict[str, PartScores]
    """For each relation its number of facts and its scores."""
    answers: AnswersName = "one-token"
    """Whether answers are one token of the LM, or of any length."""
    unsettled: int = 0
    """Facts whose search was cut before the rank of y was known; they count with their rank among what was found."""
    labels: LabelFigures | None = None
    """Precision, recall and F1 of each label; None if answers were not chosen among a few."""
    at_worst: Annotated[Scores | None, Field(exclude_if=lambda scores: scores is None)] = None
    """The means over facts if all that the searches left open were more probable than y; None if nothing is open."""
    ranked_pairs: Annotated[RankedPairs | None, Field(exclude_if=lambda found: found is None)] = None
    """How many pairs of a right and a wrong candidate are ranked correctly; None if there are no candidates."""

    @property
    def bounds_text(self) -> str:
        """The bounds that the scores lie between, in a sentence; empty if the scores are known."""
        if self.at_worst is None:
            return ""
        of_metrics = ((METRICS[name], low) for name, low in self.at_worst.items())
        text = {metric.name: (metric.text(low), metric.text(self.micro[metric.name])) for metric, low in of_metrics}
        bounds = [f"{name} between {low} and {high}" for name, (low, high) in text.items() if low != high]
        cut = f"the search for answers was cut for {counted(self.unsettled, 'fact')}"
        return f"{', '.join(bounds)}: {cut}" if bounds else f"{cut}, which changes no score"

    @property
    def doubt_text(self) -> str:
        """Between which values P@1 lies for all that so few facts show, in a sentence; empty if they are not few."""
        right = round(self.micro["P@1"] / 100 * self.facts)
        return f"{doubt(right, self.facts, self.split)}." if self.facts < FEW else ""

    def score(self, metric: str) -> float | None:
        """Return the mean of a metric over facts; None for an infinite log-loss, or a metric newer than the record."""
        return self.log_loss if metric == LOG_LOSS else self.micro.get(metric)

    @property
    def left_out_count(self) -> int:
        """How many facts could not be asked."""
        return sum(self.left_out.values())


@dataclass(frozen=True, repr=False)
class Evaluation(ShowsItself, AsFrame):
    """The outcomes of some facts, for one mixture or for mixtures of several relations."""

    split: SplitName
    vocabulary: str
    """The answers that y was ranked among."""
    outcomes: tuple[Outcome, ...]
    left_out: tuple[LeftOutFact, ...]
    candidates_left_out: int = 0
    answers: AnswersName = "one-token"
    labels: LabelFigures | None = None
    """Precision, recall and F1 of each label; None if answers were not chosen among a few."""
    ranked_pairs: RankedPairs | None = None
    """How many pairs of a right and a wrong candidate are ranked correctly; None if there are no candidates."""

    @property
    def unsettled(self) -> int:
        """Facts whose search was cut before y's rank was known; they count with their rank among what was found."""
        return sum(not outcome.is_settled for outcome in self.outcomes)

    @property
    def at_worst(self) -> Scores | None:
        """The means over facts if all that searches left open were more probable than y; None if nothing is open."""
        return scores_of([outcome.at_worst() for outcome in self.outcomes]) if self.unsettled else None

    @property
    def micro(self) -> Scores:
        """The mean over facts."""
        return scores_of(self.outcomes)

    @property
    def macro(self) -> Scores:
        """The mean of the relations' means."""
        return macro(self.outcomes)

    @property
    def log_loss(self) -> float:
        """The mean of -log p(y | x, r) in nats; infinite if some y has probability 0."""
        loss = log_loss_of(self.outcomes)
        return math.inf if loss is None else loss

    def score(self, metric: str) -> float:
        """Return the mean of a metric over facts, in its unit."""
        return metric_named(metric).mean(self.outcomes)

    def summary(self) -> Document:
        """Summarise the scores: means over facts, and over relations where there are several."""
        scores = {"micro": self.micro} | ({"macro": self.macro} if len(by_relation(self.outcomes)) > 1 else {})
        rows = [
            (name, *(METRICS[metric].text(figure) for metric, figure in of_mean.items()))
            for name, of_mean in scores.items()
        ]
        heading = f"Evaluation of {counted(len(self.outcomes), f'{self.split} fact')}, among {self.vocabulary}"
        notes = [f"log-loss {self.log_loss:.3f} nats; scores {units_of(list(self.micro))}"]
        if self.labels is not None:
            notes.append(f"macro F1 {self.labels.macro_f1:.1f}; .labels has the scores of each label")
        if self.unsettled:
            notes.append(self.figures().bounds_text)
        if len(self.outcomes) < FEW:
            notes.append(doubt(sum(outcome.rank <= 1 for outcome in self.outcomes), len(self.outcomes), self.split))
        notes += [f"{count} left out: {reason}" for reason, count in count_reasons(self.left_out).items()]
        return overview(heading, ("mean", *self.micro), rows, tuple(self.micro), tuple(notes))

    def records(self) -> Records:
        """Return a row for each fact: x, y, all right answers, the rank of y, and what was answered."""
        return [asdict(outcome) for outcome in self.outcomes]

    def plot(self, ax: Any = None) -> Any:
        """Plot a reliability diagram (are answers with probability p right in a fraction p of cases?) and return the
        matplotlib axes."""
        from askwell.views.charts import plot_reliability

        found = calibration(*questions_of(self.outcomes))
        return plot_reliability(found.bins, ece=found.ece, axes=ax)

    def for_card(self) -> dict[str, Any]:
        """Return the figures of an evaluation that are saved with a mixture."""
        beside = {"log_loss": log_loss_of(self.outcomes), "facts": len(self.outcomes), "vocabulary": self.vocabulary}
        return {**self.micro, "units": units_of(list(self.micro)), **beside}

    def figures(self) -> EvaluationFigures:
        """Return the scores, with what they are scores of."""
        raw = [outcome.with_raw_rank() for outcome in self.outcomes]
        return EvaluationFigures(
            facts=len(self.outcomes),
            left_out=count_reasons(self.left_out),
            left_out_facts=tuple(LeftOut(left.fact.x, left.fact.y, left.reason) for left in self.left_out),
            split=self.split,
            vocabulary=self.vocabulary,
            candidates_left_out=self.candidates_left_out,
            micro=self.micro,
            macro=self.macro,
            raw={"micro": scores_of(raw, RANK_METRICS), "macro": macro(raw, RANK_METRICS)},
            log_loss=log_loss_of(self.outcomes),
            answers=self.answers,
            unsettled=self.unsettled,
            labels=self.labels,
            at_worst=self.at_worst,
            ranked_pairs=self.ranked_pairs,
            relations=scores_of_parts(by_relation(self.outcomes)),
        )


@dataclass(frozen=True)
class Projection:
    """The scores of a mixture, and of its nearest words in its place, on the same facts, as means over facts."""

    relation: str
    split: SplitName
    vocabulary: str
    facts: int
    left_out: int
    tuned: Scores
    projected: Scores
    changed: float
    """The fraction of prompt tokens, from 0 to 1, whose nearest word differs from that of the hard prompt."""


def outcomes_of(
    relation: Relation, facts: Sequence[Fact], rankings: "Sequence[Ranking]", match: Match = "exact"
) -> list[Outcome]:
    """Convert rankings to the outcomes of a relation's facts; none if there are no rankings. Answers that match a right
    one loosely are golds as well, so that whatever reads outcomes need not know how they match."""
    found = []
    for fact, ranking in zip(facts if rankings else (), rankings, strict=True):
        golds = relation.golds[fact.x]
        if match == "loose":
            right = RightAnswers(golds, match)
            golds = tuple(dict.fromkeys((*golds, *(answer for answer in ranking.answers if answer in right))))
        found.append(Outcome(relation=relation.name, x=fact.x, y=fact.y, golds=golds, **vars(ranking)))
    return found


def score_facts(answers: "Answers", encoded: "EncodedFacts", relation: Relation) -> dict[str, Any]:
    """Return the scores of facts, their log-loss (None if it is infinite) and their number.

    The best answers are not searched for, since this is called repeatedly to choose among the states of a mixture. For
    answers of any length it gives only P@1, y being right if it is what the LM would write token by token (in a masked
    LM, if a search finds no better answer), and the log-loss of those that are not too long to be possible."""
    return score_each(answers, encoded, relation)[0]


def score_each(answers: "Answers", encoded: "EncodedFacts", relation: Relation) -> tuple[dict[str, Any], list[float]]:
    """Return the same scores, and the log-loss of each fact whose rank is known."""
    rankings, log_loss = answers.quick_ranks(encoded, relation.golds)
    if answers.is_listed:
        scores = scores_of(outcomes_of(relation, encoded.facts, rankings), RANK_METRICS)
    else:
        scores = {"P@1": 100 * sum(ranking.rank == 1 for ranking in rankings) / max(1, len(rankings))}
    losses = [-ranking.log_probability for ranking in rankings]
    return {**scores, "log_loss": log_loss, "facts": len(encoded)}, losses


def together(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Combine the evaluations of several relations into one."""
    first = evaluations[0]
    return Evaluation(
        first.split,
        "; ".join(dict.fromkeys(evaluation.vocabulary for evaluation in evaluations)),
        tuple(outcome for evaluation in evaluations for outcome in evaluation.outcomes),
        tuple(fact for evaluation in evaluations for fact in evaluation.left_out),
        first.candidates_left_out,
        max((evaluation.answers for evaluation in evaluations), key=[*ANSWERS_IN_WORDS].index),
        added([evaluation.labels for evaluation in evaluations]),
        pairs_together([evaluation.ranked_pairs for evaluation in evaluations]),
    )
