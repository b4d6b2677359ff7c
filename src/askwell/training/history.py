"""What a training run reports: lines of its history, its progress, and its result."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any, Literal

from askwell.answers.reply import LeftOutFact, count_reasons
from askwell.evaluation.metrics import METRICS
from askwell.evaluation.scoring import Evaluation
from askwell.mixture.learned_from import NOTHING_FOUND, LearnedFrom
from askwell.specs.training_spec import TrainingSpec
from askwell.views.document import Document, overview
from askwell.views.printable import counted
from askwell.views.to_files import AsFrame, Records
from askwell.views.to_text import ShowsItself

KeptBy = Literal["P@1", "near-best", "log-loss"]


def badness(scores: Mapping[str, Any]) -> tuple[float, float]:
    """Return a key that sorts dev scores, the best first: by P@1, then by log-loss, which is None if infinite."""
    return -scores["P@1"], loss_or_inf(scores)


def loss_or_inf(scores: Mapping[str, Any]) -> float:
    """Return the log-loss, which is infinite where None is written."""
    return math.inf if scores["log_loss"] is None else scores["log_loss"]


@dataclass(frozen=True)
class HistoryLine:
    """What a mixture scored on dev after some of its training."""

    round: int
    """The number of the dev score, 0 before training."""
    pairs: int
    """(fact, prompt) pairs that were trained on."""
    train_loss: float | None
    """Mean -log p(y | x, r) since the line before; None before training, and where weights or lengths were fitted."""
    dev: dict[str, Any]
    """The metrics in per cent, the log-loss (None if infinite), and the number of facts."""
    effective_prompts: float
    temperature: float | None = None
    """T; None where the weights have none."""
    fits_lengths: bool = False
    """Whether the lengths of a masked LM's answers were fitted for it."""
    gain: list[float] | None = None
    """How much lower dev's log-loss is than with fitted weights and the prompts as they were, and its standard error,
    where this state is kept only if that is clear."""

    def as_json(self) -> dict[str, Any]:
        """Return the line as it is written to history.jsonl."""
        optional = ("temperature", "gain", "fits_lengths")
        return {name: value for name, value in asdict(self).items() if name not in optional or value}

    @property
    def may_be_best(self) -> bool:
        """Whether tuning the prompts has not been found to leave dev's log-loss about where it was, or above."""
        return self.gain is None or self.gain[0] > CLEARLY * self.gain[1]


CLEARLY = 2.0
"""A difference of log-losses that is larger than this many of its standard errors is taken for more than chance: where
prompts are much alike, weights that depend on x are better by chance, and training them takes three times as long."""


def gain_over(before: Sequence[float], now: Sequence[float]) -> list[float] | None:
    """Return the mean by which the log-losses of the same facts fell, and its standard error; None if the facts are too
    few, or are not the same because a search was cut."""
    if len(before) != len(now):
        return None
    gains = [one - other for one, other in zip(before, now, strict=True) if math.isfinite(one - other)]
    return [fmean(gains), stdev(gains) / math.sqrt(len(gains))] if len(gains) > 1 else None


def best_of(history: Iterable[HistoryLine], kept_by: KeptBy = "P@1") -> HistoryLine:
    """Return the line of the state that is kept, the earliest if several tie.

    On few dev facts P@1 is coarse: "near-best" compares by log-loss states that differ by one fact, or by less than
    half the standard error. Half, since the states of one run agree on most facts, so that their difference is more
    certain than either score. Unless log-loss alone decides, fitted lengths are kept if P@1 is near the highest: dev's
    log-loss is also that of facts that the LM does not know, for which no length is right. States that had to beat the
    fitted weights clearly, and do not, do not count.
    """
    lines = [line for line in history if line.may_be_best]
    highest = min(lines, key=lambda line: badness(line.dev))
    if kept_by == "P@1" and not any(line.fits_lengths for line in lines):
        return highest
    if kept_by != "log-loss":
        best, facts = highest.dev["P@1"], highest.dev["facts"]
        near = max(100 / facts, standard_error(best, facts) / 2)
        lines = [line for line in lines if line.dev["P@1"] >= best - near - 1e-9]
        fitted = [line for line in lines if line.fits_lengths]
        if fitted or kept_by == "P@1":
            return fitted[-1] if fitted else highest
    return min(lines, key=lambda line: (loss_or_inf(line.dev), -line.dev["P@1"]))


def standard_error(per_cent: float, fact_count: int) -> float:
    """Compute the standard error of a P@1 over this many facts, in per cent; one right and one wrong answer are added,
    so that a few facts that are all right or all wrong do not count as certain."""
    share = (per_cent / 100 * fact_count + 1) / (fact_count + 2)
    return 100 * math.sqrt(share * (1 - share) / (fact_count + 2))


def may_be_kept(history: Iterable[HistoryLine], kept_by: KeptBy) -> list[HistoryLine]:
    """Return the lines whose states can still turn out to be the best, whatever comes later.

    A higher P@1 that comes later changes which states are within its standard error, so an earlier state that was not
    the best can become the best: all states are kept that no other matches or beats in both P@1 and log-loss.
    """
    lines = [line for line in history if line.may_be_best]
    if kept_by != "near-best":
        return [best_of(lines, kept_by)]
    front: list[HistoryLine] = []
    for line in sorted(lines, key=lambda line: (*badness(line.dev), line.round)):
        if not front or loss_or_inf(line.dev) < loss_or_inf(front[-1].dev):
            front.append(line)
    return front


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a training run."""

    pairs_done: int
    """(fact, prompt) pairs that were trained on."""
    pairs: int
    """Pairs of the whole run, at most."""
    loss: float | None
    """Mean -log p(y | x, r) since dev was last scored; None where nothing was trained on since."""
    record: HistoryLine | None
    """The line of the history, when dev has just been scored."""
    history: tuple[HistoryLine, ...]
    best: HistoryLine
    """The line of the state that would be kept now."""
    ends_by_itself: bool
    """Whether the run may end before all its pairs, since dev's log-loss no longer falls."""
    dev_scored: str = ""
    """How many of its dev facts are asked at each score, if not all are."""


@dataclass(frozen=True, repr=False)
class TrainingResult(ShowsItself, AsFrame):
    """What a training run did. The mixture is left in its best state."""

    spec: TrainingSpec
    """How it was trained, with the number of threads."""
    history: tuple[HistoryLine, ...]
    left_out: dict[str, tuple[LeftOutFact, ...]]
    """Facts of train and dev that could not be asked, or whose y is not among the candidates."""
    train_facts: int
    dev_facts: int
    pairs: int
    """(fact, prompt) pairs that were trained on."""
    planned_pairs: int
    """Pairs of the whole run, at most."""
    step_sizes: dict[str, Any]
    """Adam's step sizes for the vectors, for each layer, and for the weights."""
    finished: bool
    """False if the run was interrupted."""
    vocabulary: str
    """The answers that y was ranked among on dev."""
    test: Evaluation | None = None
    """The evaluation on the test facts, if `train` was asked for it."""

    def summary(self) -> Document:
        """Summarise the dev scores during training, with the kept state marked."""
        rows = [
            (
                f"{line.pairs:,}",
                "" if line.train_loss is None else f"{line.train_loss:.3f}",
                f"{line.dev['P@1']:.1f}",
                "∞" if line.dev["log_loss"] is None else f"{line.dev['log_loss']:.3f}",
                "← kept" if line is self.best else "",
            )
            for line in self.history
        ]
        columns = ("pairs", "train loss", "dev P@1", "dev log-loss", "")
        state = "" if self.finished else ", interrupted"
        heading = f"Trained on {self.train_facts:,} facts, scored on {counted(self.dev_facts, 'dev fact')}{state}"
        left_out = {split: count_reasons(facts) for split, facts in self.left_out.items()}
        notes = tuple(
            f"{count} facts of {split} left out: {reason}"
            for split, reasons in left_out.items()
            for reason, count in reasons.items()
        )
        if self.learned_from.found_nothing:
            notes += (NOTHING_FOUND,)
        if self.test is not None:
            scores = ", ".join(f"{name} {METRICS[name].text(score)}" for name, score in self.test.micro.items())
            notes += (f"on {counted(len(self.test.outcomes), 'test fact')}: {scores}; .test has the evaluation",)
        return overview(heading, columns, rows, columns[:4], notes)

    def records(self) -> Records:
        """Return a row for each time that dev was scored."""
        return [
            {
                "pairs": line.pairs,
                "train_loss": line.train_loss,
                **{f"dev_{name}": figure for name, figure in line.dev.items()},
                "effective_prompts": line.effective_prompts,
                "temperature": line.temperature,
            }
            for line in self.history
        ]

    def plot(self, ax: Any = None, *, label: str = "") -> Any:
        """Plot dev P@1 during tuning, with the kept state marked, and return the matplotlib axes."""
        from askwell.views.charts import plot_curve

        points = [(line.pairs, line.dev["P@1"]) for line in self.history]
        return plot_curve(points, best=self.best.pairs, label=label, axes=ax)

    @property
    def best(self) -> HistoryLine:
        """The line of the state that was kept."""
        return best_of(self.history, self.spec.kept_by)

    @property
    def best_pairs(self) -> int:
        """The pairs trained on when the vectors that were kept were reached; what is fitted after the last step is
        fitted to the best vectors so far, and moves none."""
        best = self.best
        if best.fits_lengths:
            best = best_of((line for line in self.history if line.round < best.round), self.spec.kept_by)
        return best.pairs

    @property
    def dev_scores(self) -> dict[str, Any]:
        """What the kept state scores on dev, for a model card."""
        return {**self.best.dev, "vocabulary": self.vocabulary}

    @property
    def learned_from(self) -> LearnedFrom:
        """What the mixture was trained on and how, to be saved with it."""
        return LearnedFrom(
            train_facts=self.train_facts,
            dev_facts=self.dev_facts,
            left_out={split: count_reasons(without) for split, without in self.left_out.items()},
            training=self.spec,
            pairs=self.pairs,
            planned_pairs=self.planned_pairs,
            best_pairs=self.best_pairs,
            finished=self.finished,
            step_sizes=self.step_sizes,
        )


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while training. The mixture is in its best state so far, which `result` describes."""

    def __init__(self, result: TrainingResult) -> None:
        super().__init__("training was interrupted")
        self.result = result
