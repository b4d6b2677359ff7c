"""Controls, which need no knowledge of x, and knowledge: what a run scores above the best of them, and how many x's an
LM knows an answer to, with luck taken out.

- "majority" ranks the ys of train by how often they occur there (repeated lines counted). A y that does not occur in
  train ranks after all that do; all such answers of the vocabulary are tied. Ys that are not among the LM's answers are
  skipped.
- "prior" gives the mean of the prompts' own answers p(y | x, r) over x's of train.
- "prior-masked-x" gives what the prompts answer to one mask token in place of x, where the LM is asked with masks.

There is also "prior-corrected", which does look at x: answers are ranked by log p(y | x, r) - log prior(y), so
that an answer which the prompts give to everything counts for little. It is another score of the same LM, not one of
the controls that a score is compared with.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from askwell.data.facts import Relation, SplitName
from askwell.errors import NothingSettled, UsageError
from askwell.evaluation.comparison import Outcomes, Unit, compare
from askwell.evaluation.metrics import LOG_LOSS, METRICS, RANK_METRICS, Average, Metric, Scores, metric_named, scores_of
from askwell.evaluation.outcomes import FactKey, Outcome

if TYPE_CHECKING:
    from askwell.answers.strategy import Answers, Prior, PromptAnswers

MAJORITY, PRIOR, PRIOR_MASKED_X, PRIOR_CORRECTED = "majority", "prior", "prior-masked-x", "prior-corrected"


def priors_of(answers: "Answers", relation: Relation, *, seed: int = 0) -> "tuple[dict[str, Prior], dict[str, str]]":
    """Return majority, prior and prior with x masked, by name, and why those that are missing are not available."""
    priors: dict[str, Prior] = {}
    missing: dict[str, str] = {}
    try:
        priors[MAJORITY] = answers.majority(relation)
    except UsageError as problem:
        missing[MAJORITY] = str(problem)
    try:
        priors[PRIOR] = answers.mean_prior(relation, seed=seed)
    except UsageError as problem:
        missing |= dict.fromkeys([PRIOR, PRIOR_CORRECTED] if answers.is_listed else [PRIOR], str(problem))
    if (masked := answers.masked_prior()) is not None:
        priors[PRIOR_MASKED_X] = masked
    return priors, missing


@dataclass(frozen=True)
class ControlFigures:
    """What a control is, and its scores on each split, as means over facts; None where all searches were cut."""

    description: str
    test: Scores | None = None
    dev: Scores | None = None


@dataclass(frozen=True)
class Controls:
    """The outcomes of the controls, and of the prior-corrected answers, on some splits of a relation."""

    descriptions: dict[str, str]
    """What each is, by name."""
    outcomes: dict[str, dict[SplitName, list[Outcome]]]
    """By name and split."""
    missing: dict[str, str]
    """What is not available (a control, a split), and why."""

    @property
    def controls(self) -> dict[str, dict[SplitName, list[Outcome]]]:
        """The outcomes of the controls alone."""
        return {name: by_split for name, by_split in self.outcomes.items() if name != PRIOR_CORRECTED}

    def figures(self) -> dict[str, ControlFigures]:
        """Return the scores of each, by name, on the facts whose ranks are known."""
        figures = {}
        for name, by_split in self.outcomes.items():
            known = {split: [one for one in by_split.get(split, ()) if one.is_settled] for split in ("test", "dev")}
            scores = {
                split: scores_of(outcomes, RANK_METRICS) if outcomes else None for split, outcomes in known.items()
            }
            figures[name] = ControlFigures(self.descriptions[name], **scores)
        return figures


def controls_together(found: Sequence[Controls]) -> Controls:
    """Combine the controls that all of several mixtures have; if one LM is causal, none of them has x masked."""
    if not found:
        return Controls({}, {}, {})
    names = [name for name in found[0].outcomes if all(name in one.outcomes for one in found)]
    descriptions = {}
    for name in names:
        each = list(dict.fromkeys(one.descriptions[name] for one in found))
        descriptions[name] = each[0] if len(each) == 1 else f"{each[0]}; likewise for each relation"
    outcomes = {
        name: {
            split: [outcome for one in found for outcome in one.outcomes[name].get(split, [])]
            for split in found[0].outcomes[name]
        }
        for name in names
    }
    return Controls(descriptions, outcomes, {})


@dataclass(frozen=True)
class Bits:
    """How many bits of the right answer a mixture knows beyond a control, as a mean over facts that both answered."""

    control: str
    """The control with the lowest log-loss on dev."""
    facts: int
    log_loss: float
    """Of the mixture, in nats."""
    control_log_loss: float
    bits: float
    """Their difference, in bits: above 0 if the mixture knows more."""


@dataclass(frozen=True)
class Knowledge:
    """By how much a run is better than the best control on the same test facts; scores are in the metric's unit."""

    control: str
    """The control that is best on dev."""
    metric: str
    average: Average
    unit: Unit
    facts: int
    """Facts that both answered."""
    only_run: int
    only_control: int
    score: float
    control_score: float
    gain: float
    low: float | None
    """None, like `high`, if there is no interval, as for a single unit."""
    high: float | None
    confidence: float
    p: float
    """Of the paired permutation test."""
    is_there: bool
    """Whether the whole interval of the gain is above 0."""
    controls: dict[str, dict[SplitName, float]]
    """The mean of each control over all facts of dev and of test for which it is known."""
    bits: Annotated[Bits | None, Field(exclude_if=lambda bits: bits is None)] = None
    """The gain in log-loss; None if only ranks of the controls are known, or if a log-loss is infinite."""


def knowledge(
    run: Outcomes,
    controls: Mapping[str, Mapping[SplitName, Outcomes]],
    *,
    unit: Unit = "y",
    resamples: int = 9_999,
    seed: int = 0,
) -> Knowledge | None:
    """Compute the gain in P@1 over the control that is best on dev, on all test facts, with its interval and p; None
    if no control has outcomes on both, or if searches were cut before any fact's score was known. A control counts with
    the facts whose score is known, and not at all if there are none: a prior that is spread thinly is often cut.

    A unit of the bootstrap and of the permutation test is by default all facts of a relation with one y. What a
    tuned prompt learns without knowing anything is to prefer some ys, and then all facts with such a y are answered
    alike. If each fact counted as independent evidence, an LM that knows nothing would too often seem to know
    something, just because its favourite y happens to be frequent in test.

    With few changed units the bootstrap is overconfident (four wins and no loss suffice). So the interval always
    contains 0 unless the permutation test is significant at the same confidence.
    """
    by = METRICS["P@1"]
    controls = {name: of for name, of in controls.items() if {"dev", "test"} <= of.keys() and name != PRIOR_CORRECTED}
    known: dict[str, dict[SplitName, list[Outcome]]] = {
        name: {split: [one for one in _all(of[split]) if by.is_known(one)] for split in ("dev", "test")}
        for name, of in controls.items()
    }
    known = {name: of for name, of in known.items() if of["dev"] and of["test"]}
    if not known:
        return None
    try:
        best = best_control({name: of["dev"] for name, of in known.items()})
        comparison = compare(run, controls[best]["test"], unit=unit, resamples=resamples, seed=seed)
    except NothingSettled:
        return None  # an LM that knows nothing spreads its answers so thinly that every search is cut
    found = comparison.micro
    low, high = found.low, found.high
    if low is not None and high is not None and found.p > 1 - comparison.confidence:
        low, high = min(low, 0.0), max(high, 0.0)
    return Knowledge(
        control=best,
        metric=by.name,
        average="micro",
        unit=unit,
        facts=comparison.facts,
        only_run=comparison.only_a,
        only_control=comparison.only_b,
        score=found.a,
        control_score=found.b,
        gain=found.difference,
        low=low,
        high=high,
        confidence=comparison.confidence,
        p=found.p,
        is_there=low is not None and low > 0,
        controls={name: {split: _mean(of[split], by) for split in ("dev", "test")} for name, of in known.items()},
        bits=bits_over(run, controls),
    )


def bits_over(run: Outcomes, controls: Mapping[str, Mapping[SplitName, Outcomes]]) -> Bits | None:
    """Compute by how many bits a run's log-loss on test is below that of the control whose log-loss on dev is lowest.

    A control that gives some dev y no probability, as the most frequent ys of train do to all others, cannot be it.
    None without probabilities of controls, and if a log-loss on test is infinite.
    """
    by = metric_named(LOG_LOSS)
    losses = {name: _value_of_facts(of["dev"], by).values() for name, of in controls.items() if of["dev"]}
    possible = [name for name, of_dev in losses.items() if math.isfinite(sum(of_dev))]
    if not possible:
        return None
    best = best_control({name: controls[name]["dev"] for name in possible}, metric=LOG_LOSS)
    own, its = _value_of_facts(run, by), _value_of_facts(controls[best]["test"], by)
    shared = sorted(own.keys() & its.keys())
    if not shared:
        return None
    loss, control_loss = (fmean(of[fact] for fact in shared) for of in (own, its))
    if not math.isfinite(control_loss - loss):
        return None
    return Bits(best, len(shared), loss, control_loss, (control_loss - loss) / math.log(2))


def best_control(controls: Mapping[str, Outcomes], *, metric: str = "P@1") -> str:
    """Return the name of the control with the best mean over the dev facts that all answered; the first of equal ones.

    Choose on dev and report on test: the best of several on test would be a matter of luck. A control with several
    seeds counts with the mean over them.
    """
    by = metric_named(metric)
    values = {name: _value_of_facts(outcomes, by) for name, outcomes in controls.items()}
    shared = set.intersection(*({*of_control} for of_control in values.values()))
    if not shared:
        raise NothingSettled(f"the controls {', '.join(controls)} have no dev fact in common")
    # Sorted, so that sums do not depend on the order of a set.
    means = {name: sum(of_control[fact] for fact in sorted(shared)) for name, of_control in values.items()}
    return (max if by.higher_is_better else min)(means, key=means.__getitem__)


def _value_of_facts(outcomes: Outcomes, metric: Metric) -> dict[FactKey, float]:
    """Return the mean value of each fact over its lines and seeds."""
    values: dict[FactKey, list[float]] = {}
    for outcome in _all(outcomes):
        values.setdefault(outcome.key, []).append(metric.value(outcome))
    return {fact: sum(of_fact) / len(of_fact) for fact, of_fact in values.items()}


def _mean(outcomes: Outcomes, metric: Metric) -> float:
    return metric.scale * fmean(map(metric.value, _all(outcomes)))


def _all(outcomes: Outcomes) -> list[Outcome]:
    runs = outcomes.values() if isinstance(outcomes, Mapping) else [outcomes]
    return [outcome for run in runs for outcome in run]


# ── how many x's are known ────────────────────────────────────────────────────────────────────────────────────────────

# An LM may know what only one of its prompts finds, and then the mixture's best answer is wrong. So an x counts as
# answered if some prompt's best answer is right; prompts that hold the last 5 % of the weight for x do not count.
#
# Several answers are right by luck more often than one. How often, the other x's tell: luck is the fraction of them for
# which the same answers would be right. If the LM knows nothing about an x, no prompt answers it with a probability of
# 1 - luck; so every x that is not answered stands for 1 / (1 - luck) x's that are not known (Horvitz and Thompson).

WEIGHT = 0.95
"""Answers count until the prompts that give them hold this much of the weight: the last few prompts for an x seldom
know more, and each of their answers may be right by luck."""
MOST_LUCK = 0.95
"""So that no x stands for more than 20."""


@dataclass(frozen=True)
class KnownShare:
    """An estimate of how many x's the LM knows an answer to; fractions are from 0 to 1."""

    questions: int
    answered: float
    """X's that some prompt answers correctly."""
    luck: float
    """The mean fraction of other x's for which the answers to an x would be right."""
    known: float
    """The estimate. What an LM can work out from what else it knows about x counts as known."""
    low: float
    high: float
    """Two standard errors below and above."""


def given_answers(answers: "PromptAnswers") -> list[set[int]]:
    """Return the best answers of the prompts to each x, by their numbers: those that most weight gives, until they have
    WEIGHT of it."""
    found = []
    for best, weights in zip(answers.best.tolist(), answers.weights.tolist(), strict=True):
        by_answer: dict[int, float] = defaultdict(float)
        for answer, weight in zip(best, weights, strict=True):
            by_answer[answer] += weight
        given, total = set(), 0.0
        for answer in sorted(by_answer, key=lambda one: (-by_answer[one], one)):
            if total >= WEIGHT * sum(weights):
                break
            given.add(answer)
            total += by_answer[answer]
        found.append(given)
    return found


def luck_of(given: Sequence[Collection[int]], golds: Sequence[Collection[int]]) -> list[float]:
    """Return, for each x, the fraction of the other x's for which the answers given to it would be right."""
    right_for: dict[int, set[int]] = defaultdict(set)
    for number, of_x in enumerate(golds):
        for gold in of_x:
            right_for[gold].add(number)
    others = len(golds) - 1
    return [
        len(set().union(*(right_for[answer] for answer in answers if answer in right_for)) - {number}) / others
        for number, answers in enumerate(given)
    ]


def known_share(given: Sequence[Collection[int]], golds: Sequence[Collection[int]]) -> KnownShare | None:
    """Estimate how many x's are known from the answers of the prompts to each, and its right answers; None for fewer
    than two x's."""
    if len(given) < 2:
        return None
    answered = [any(answer in of_x for answer in answers) for answers, of_x in zip(given, golds, strict=True)]
    return without_luck(answered, luck_of(given, golds))


def without_luck(answered: Sequence[bool], luck: Sequence[float]) -> KnownShare:
    """Estimate how many x's are known from whether each is answered, and by how much luck it would be.

    For the standard error, two x's that are known and two that are not are added: if all are answered, or none, the
    estimate is still not certain (Agresti and Coull).
    """
    known = [1.0 if a else 1 - 1 / (1 - min(q, MOST_LUCK)) for a, q in zip(answered, luck, strict=True)]
    mean, error = fmean(known), stdev([*known, 1.0, 1.0, 0.0, 0.0]) / math.sqrt(len(known) + 4)
    low, estimate, high = (min(max(value, 0.0), 1.0) for value in (mean - 2 * error, mean, mean + 2 * error))
    return KnownShare(len(known), fmean(answered), fmean(luck), estimate, low, high)


def mean_of_runs(found: Sequence[KnownShare | None]) -> KnownShare | None:
    """Return the means over several runs, weighted by their x's, and all their x's; None if a run has no estimate.

    The interval is the mean of the runs' own, since runs of other seeds ask about the same x's.
    """
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return None
    total = sum(one.questions for one in known)
    names = [field.name for field in fields(KnownShare)][1:]
    means = {name: sum(getattr(one, name) * one.questions for one in known) / total for name in names}
    return KnownShare(questions=total, **means)
