"""Abstention: if only the surest answers are given, how many are wrong?

Coverage is the share of questions that are answered, risk the share of the answers given that are wrong, both from 0
to 1. The signal can be a probability or anything else that is larger for surer answers.

What a mixture answered to dev questions, kept with it, and the threshold on its probability that follows from it.

Asking with a chosen risk: an answer that is too improbable is not given.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from askwell.data.facts import Relation
from askwell.errors import BadOption, DamagedFile, UserMistake
from askwell.evaluation.evaluate import Evaluation, evaluate
from askwell.evaluation.questions import Questions, questions_of
from askwell.mixture.answers import Candidates
from askwell.mixture.ask import Reply, ask
from askwell.mixture.encode import count_reasons
from askwell.mixture.mixture import Mixture


@dataclass(frozen=True)
class RiskCoverage:
    """The risk–coverage curve: what happens if all questions with a signal of at least a threshold are answered."""

    thresholds: Float[np.ndarray, " points"]
    """All distinct signals, falling."""
    coverages: Float[np.ndarray, " points"]
    risks: Float[np.ndarray, " points"]
    area: float
    """The mean of the risk over the coverages 1/n, 2/n … 1: the smaller the better."""

    def as_json(self) -> dict[str, Any]:
        """The curve as lists, and its area."""
        return {
            "thresholds": self.thresholds.tolist(),
            "coverages": self.coverages.tolist(),
            "risks": self.risks.tolist(),
            "area": self.area,
        }


@dataclass(frozen=True)
class Threshold:
    """A threshold, and what it gives on the questions that it was learned from."""

    value: float
    """Answer if the signal is at least this; infinite if no threshold keeps the risk."""
    coverage: float
    risk: float
    """0 if nothing is answered."""


@dataclass(frozen=True)
class Abstention:
    """What a threshold gives on other questions."""

    questions: int
    answered: int
    wrong: int

    @property
    def coverage(self) -> float:
        """The share of questions that is answered."""
        return self.answered / self.questions

    @property
    def risk(self) -> float:
        """The share of the answers given that is wrong; 0 if none is given."""
        return self.wrong / self.answered if self.answered else 0.0


def risk_coverage(signals: Float[np.ndarray, " questions"], right: Bool[np.ndarray, " questions"]) -> RiskCoverage:
    """The curve of a signal, and the area under it.

    Questions with equal signals cannot be told apart by a threshold: the curve has one point for all of them, and for
    the area their wrong answers are spread evenly over their places, which is the mean over all orders of them.
    """
    _check(signals)
    thresholds, which = np.unique(-signals, return_inverse=True)
    counts = np.bincount(which)
    wrongs = np.bincount(which, weights=~right)
    answered, wrong = np.cumsum(counts), np.cumsum(wrongs)
    # At each place inside of a group: what went before, and an even share of the group's wrong answers.
    of_place = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(1, len(signals) + 1)
    before = answered[of_place] - counts[of_place]
    wrong_so_far = (wrong - wrongs)[of_place] + (places - before) * (wrongs / counts)[of_place]
    return RiskCoverage(
        thresholds=-thresholds,
        coverages=answered / len(signals),
        risks=wrong / answered,
        area=float((wrong_so_far / places).mean()),
    )


def learn_threshold(
    signals: Float[np.ndarray, " questions"],
    right: Bool[np.ndarray, " questions"],
    *,
    risk: float,
    sureness: float | None = None,
) -> Threshold:
    """The threshold that answers most dev questions while the risk among them is at most `risk`.

    With `sureness` (0.95, say) it is not the risk itself but its one-sided Clopper–Pearson bound that must be at most
    `risk`, since a threshold that was chosen on few dev questions will be wrong more often elsewhere.
    """
    if not 0 <= risk <= 1:
        raise BadOption(f"the risk {risk} is not between 0 and 1")
    if sureness is not None and not 0 < sureness < 1:
        raise BadOption(f"the sureness {sureness} is not between 0 and 1")
    curve = risk_coverage(signals, right)
    answered = np.rint(curve.coverages * len(signals))
    wrong = np.rint(curve.risks * answered)
    bound = curve.risks if sureness is None else np.ones(len(answered))
    if sureness is not None:
        some_right = wrong < answered
        bound[some_right] = stats.beta.ppf(sureness, wrong[some_right] + 1, (answered - wrong)[some_right])
    # Not where the curve first goes above the risk: it rises and falls, and may come back.
    kept = np.flatnonzero(bound <= risk)
    if not len(kept):
        return Threshold(math.inf, 0.0, 0.0)
    last = kept[-1]
    return Threshold(float(curve.thresholds[last]), float(curve.coverages[last]), float(curve.risks[last]))


def abstain(
    threshold: float, signals: Float[np.ndarray, " questions"], right: Bool[np.ndarray, " questions"]
) -> Abstention:
    """What is answered, and wrong, if only questions with a signal of at least the threshold are answered."""
    _check(signals)
    answered = signals >= threshold
    return Abstention(len(signals), int(answered.sum()), int((answered & ~right).sum()))


def _check(signals: np.ndarray) -> None:
    if not len(signals):
        raise BadOption("there are no questions to abstain from")
    if np.isnan(signals).any():
        raise BadOption("a signal is not a number, so questions cannot be ordered by it")


@dataclass(frozen=True)
class DevAnswers:
    """How sure a mixture was of its answers to dev questions, and which of them were right."""

    relation: str
    vocabulary: str
    candidates: str | None
    """The hash of the candidate vocabulary, None for all answers of the LM."""
    facts: int
    left_out: dict[str, int]
    """How many dev facts were not asked, by reason."""
    confidences: Float[np.ndarray, " questions"]
    right: Bool[np.ndarray, " questions"]

    def as_json(self) -> dict[str, Any]:
        """All of it as plain data, surest answers first, so that the order of facts does not matter."""
        order = np.lexsort((~self.right, -self.confidences))
        return {
            "relation": self.relation,
            "vocabulary": self.vocabulary,
            "candidates": self.candidates,
            "facts": self.facts,
            "left_out": self.left_out,
            "probabilities": self.confidences[order].tolist(),
            "right": self.right[order].astype(int).tolist(),
        }

    def threshold(self, risk: float, sureness: float | None = None) -> Threshold:
        """The lowest probability that keeps the share of wrong answers among the dev answers given at `risk`.

        With `sureness` an upper bound of that share is kept, see `learn_threshold`. The dev facts also chose the state
        of a tuned mixture that was kept, so elsewhere the risk can be a little higher.
        """
        found = learn_threshold(self.confidences, self.right, risk=risk, sureness=sureness)
        if math.isfinite(found.value):
            return found
        sure = "" if sureness is None else f" with a sureness of {100 * sureness:g} %"
        problem = "even the surest answers are wrong too often"
        if sureness is not None:
            problem += " to be sure, or there are too few of them"
        way_out = "choose a higher risk" + ("" if sureness is None else " or a lower sureness (or none)")
        raise BadOption(
            f"no threshold keeps a risk of {100 * risk:g} %{sure}: on the {len(self.right)} dev questions of "
            f"{self.relation}, of which {int(self.right.sum())} are answered right, {problem}; {way_out}"
        )


def dev_answers(evaluation: Evaluation, candidates: Candidates | None = None) -> DevAnswers:
    """What is to be kept of an evaluation on the dev facts of one relation, among the same candidates."""
    names = {outcome.relation for outcome in evaluation.outcomes}
    if evaluation.split != "dev" or len(names) != 1:
        raise UserMistake("a threshold is learned from the dev facts of one relation")
    questions: Questions = questions_of(evaluation.outcomes)
    return DevAnswers(
        relation=names.pop(),
        vocabulary=evaluation.vocabulary,
        candidates=None if candidates is None else candidates.digest,
        facts=len(evaluation.outcomes),
        left_out=count_reasons(evaluation.left_out),
        confidences=questions.confidences.astype(np.float64),
        right=questions.right,
    )


def keep_dev_answers(mixture: Mixture, relation: Relation) -> DevAnswers:
    """Asks the relation's dev facts and notes the answers on the mixture, so that they are saved with it.

    To be called when training is over: what is noted is of the mixture as it is now.
    """
    found = dev_answers(evaluate(mixture, relation, split="dev", top=1))
    mixture.dev_answers = found.as_json()
    return found


def kept_dev_answers(mixture: Mixture) -> DevAnswers:
    """The dev answers that were saved with a mixture; an error says what to do if there are none."""
    kept = mixture.dev_answers
    if not kept:
        raise UserMistake(
            "the mixture has no record of its answers to dev questions (it is untuned, or was saved before there was "
            "one), so no threshold is known: name its relation, whose dev facts are then asked first (--facts)"
        )
    try:
        return DevAnswers(
            relation=kept["relation"],
            vocabulary=kept["vocabulary"],
            candidates=kept["candidates"],
            facts=kept["facts"],
            left_out=kept["left_out"],
            confidences=np.array(kept["probabilities"], dtype=np.float64),
            right=np.array(kept["right"], dtype=bool),
        )
    except (KeyError, TypeError, ValueError):
        raise DamagedFile("the mixture's record of its answers to dev questions is not of the known form") from None


# The threshold is the probability of some dev answer; asked again among other x's, it can differ in its last digits.
_LAST_DIGITS = 1e-5


@dataclass(frozen=True)
class CautiousReply:
    """The most probable answers to a question, and whether the best of them is sure enough to be given."""

    x: str
    answers: tuple[Reply, ...]
    threshold: float

    @property
    def answered(self) -> bool:
        """Whether the best answer is at least as probable as the threshold."""
        return self.answers[0].probability >= self.threshold * (1 - _LAST_DIGITS)


def ask_cautiously(
    mixture: Mixture,
    xs: Sequence[str],
    *,
    risk: float,
    sureness: float | None = None,
    top: int = 10,
    candidates: Candidates | None = None,
    dev: DevAnswers | None = None,
) -> Iterator[CautiousReply]:
    """For each x its most probable answers, and whether they are good enough for a risk, as learned from dev answers.

    The dev answers are those that were saved with the mixture, if none are given; they must be of the same candidates.
    """
    dev = dev or kept_dev_answers(mixture)
    if dev.candidates != (None if candidates is None else candidates.digest):
        raise BadOption(
            f"the threshold was learned among {dev.vocabulary}, and now other candidates are asked for: name the "
            "relation, whose dev facts are then asked among the same candidates (--facts)"
        )
    threshold = dev.threshold(risk, sureness).value
    replies = ask(mixture, xs, top=top, candidates=candidates)
    return (CautiousReply(x, tuple(answers), threshold) for x, answers in zip(xs, replies, strict=True))
