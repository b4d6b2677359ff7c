"""Trust: how far one mixture's scores on one relation can be believed; and `evaluate`, which measures both.

Besides what the probabilities of answers are worth, it is measured whether the prompts agree, and whether agreement
separates right answers from wrong ones. Agreement is not truth: all prompts can be wrong together. Fractions are from
0 to 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from pydantic import Field

from askwell.answers.candidates import GivenCandidates, as_candidates
from askwell.answers.reply import count_reasons
from askwell.data.facts import Relation, SplitName
from askwell.errors import BadOption, checked
from askwell.evaluation.confidence import (
    AnswerSets,
    Calibration,
    RiskCoverage,
    calibration,
    learn_set_threshold,
    learn_threshold,
    outcomes_by_x,
    questions_of,
    risk_coverage,
    score_answer_sets,
)
from askwell.evaluation.knowledge import Controls, KnownShare, given_answers, known_share
from askwell.evaluation.metrics import Scores
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.scoring import Evaluation, Progress, Projection

if TYPE_CHECKING:  # records of runs hold measures of trust and are read without torch
    from askwell.answers.strategy import PromptAnswers
    from askwell.evaluation.examine import Examination
    from askwell.mixture.mixture import Mixture


@dataclass(frozen=True)
class Agreement:
    """How often the prompts of a mixture have the same best answer, as a mean over questions."""

    questions: int
    pairs: float
    """The fraction of all pairs of prompts that give the same answer."""
    weighted: float | None
    """The same with each pair weighted by the product of its weights; None if one prompt has all the weight."""
    all_agree: float
    """The fraction of questions to which all prompts give the same answer."""
    with_mixture: float
    """The weight of the prompts that give the same answer as the mixture."""


@dataclass(frozen=True)
class Consistency:
    """How far the prompts of a mixture agree: hard prompts that are paraphrases of each other, or soft ones."""

    prompts: int
    all: Agreement
    right: Agreement | None
    """Among questions that the mixture gets right; None if there are none."""


def consistency(answers: "PromptAnswers", right: Bool[np.ndarray, " xs"]) -> Consistency:
    """Measure how far the prompts agree on all x's, and on those that the mixture gets right."""
    return Consistency(
        prompts=len(answers.prompts),
        all=_agreement(answers.best, answers.weights, answers.of_mixture),
        right=_agreement(answers.best[right], answers.weights[right], answers.of_mixture[right])
        if right.any()
        else None,
    )


def _agreement(
    best: Int[np.ndarray, "xs prompts"], weights: Float[np.ndarray, "xs prompts"], of_mixture: Int[np.ndarray, " xs"]
) -> Agreement:
    prompts = best.shape[1]
    pairs, weighted, all_agree = [], [], []
    for answers, shares in zip(best, weights / weights.sum(1, keepdims=True), strict=True):
        which = np.unique(answers, return_inverse=True)[1]
        counts, totals = np.bincount(which), np.bincount(which, weights=shares)
        pairs.append((counts * (counts - 1)).sum() / (prompts * (prompts - 1)))
        alone = (shares**2).sum()  # pairs of a prompt with itself do not count
        if alone < 1 - 1e-12:
            weighted.append(((totals**2).sum() - alone) / (1 - alone))
        all_agree.append(len(counts) == 1)
    with_mixture = (weights * (best == of_mixture[:, None])).sum(1) / weights.sum(1)
    return Agreement(
        questions=len(best),
        pairs=float(np.mean(pairs)),
        weighted=float(np.mean(weighted)) if weighted else None,
        all_agree=float(np.mean(all_agree)),
        with_mixture=float(with_mixture.mean()),
    )


@dataclass(frozen=True)
class Specialty:
    """What a prompt is for in a mixture whose weights depend on x."""

    template: str
    weight: float
    """Its mean weight over x's."""
    leads: int
    """How many x's give it more weight than any other prompt."""
    right: int
    """How many of these the mixture answers correctly."""
    xs: dict[str, float]
    """The x's among them that give it the most weight, with that weight."""


_XS_SHOWN = 5


def specialties(
    templates: Sequence[str],
    xs: Sequence[str],
    weights: Float[np.ndarray, "xs prompts"],
    right: Bool[np.ndarray, " xs"],
) -> tuple[Specialty, ...]:
    """Return which x's each prompt takes, the prompt that takes most first; none if weights do not depend on x."""
    if np.allclose(weights, weights[:1], atol=1e-6):
        return ()
    leader = weights.argmax(1)
    found = []
    for number, template in enumerate(templates):
        led, own = np.flatnonzero(leader == number), weights[:, number]
        most = led[np.argsort(-own[led], kind="stable")][:_XS_SHOWN]
        shown = {xs[row]: round(float(own[row]), 4) for row in most.tolist()}
        found.append(Specialty(template, float(own.mean()), len(led), int(right[led].sum()), shown))
    return tuple(sorted(found, key=lambda one: (-one.leads, -one.weight)))


@dataclass(frozen=True)
class SignalAreas:
    """The area under the risk–coverage curve of several signals on the same questions: lower is better."""

    questions: int
    areas: dict[str, float]
    best_possible: float
    """If all right answers came before all wrong ones."""
    no_signal: float
    """If answers came in random order: the fraction of wrong ones."""


def disagreement(answers: "PromptAnswers") -> Float[np.ndarray, " xs"]:
    """Return, for each x, the weight of the prompts whose best answer is not the mixture's, from 0 to 1."""
    same = answers.best == answers.of_mixture[:, None]
    return 1 - (answers.weights * same).sum(1) / answers.weights.sum(1)


def compare_signals(
    confidences: Float[np.ndarray, " questions"], answers: "PromptAnswers", right: Bool[np.ndarray, " questions"]
) -> SignalAreas:
    """Compute the areas of three signals, the probability of the answer and, if there are several prompts, two measures
    of their agreement; with the best possible area and the area without a signal."""
    signals = {"probability": confidences}
    if len(answers.prompts) > 1:
        signals |= {"agreement": 1 - disagreement(answers), "divergence": -answers.divergences}
    return SignalAreas(
        questions=len(right),
        areas={name: risk_coverage(values, right).area for name, values in signals.items()},
        best_possible=risk_coverage(right.astype(np.float64), right).area,
        no_signal=float((~right).mean()),
    )


@dataclass(frozen=True)
class AtRisk:
    """Coverage and risk on test of the threshold that meets a risk on dev; fractions are from 0 to 1."""

    risk: float
    confidence: float | None
    """The confidence with which the risk is kept, if the threshold was chosen with one."""
    threshold: float | None
    """Answers of at least this probability are given; None if no threshold meets the risk on dev."""
    dev_questions: int
    dev_coverage: float
    dev_risk: float
    questions: int
    answered: int
    wrong: int
    coverage: float
    """The fraction of questions that are answered."""
    found_risk: float | None
    """The fraction of the given answers that are wrong; None if none is given."""


@dataclass(frozen=True)
class Trust:
    """The figures of one mixture on the test facts of one relation; what could not be measured is None, and `missing`
    says why."""

    relation: str
    lm: str
    vocabulary: str
    """The answers that y was ranked among."""
    facts: int
    """Test facts that were asked; scores are means over them."""
    left_out: dict[str, int]
    """Test facts that were not asked, by reason."""
    dev_facts: int
    """Dev facts from which thresholds were learned."""
    dev_left_out: dict[str, int]
    questions: int
    """Distinct x's: calibration, abstention, answer sets and consistency are means over them."""
    several_ys: int
    """How many of them have several ys among the test facts asked."""
    scores: Scores
    calibration: Calibration
    risk_coverage: RiskCoverage
    """By the probability of the best answer."""
    signals: SignalAreas
    at_risk: AtRisk | None
    answer_sets: AnswerSets | None
    consistency: Consistency | None
    projection: Projection | None
    missing: dict[str, str]
    split: Literal["test"] = "test"
    averaging: str = "scores over facts (micro), the rest over questions"
    known: Annotated[KnownShare | None, Field(exclude_if=lambda found: found is None)] = None
    """How many x's the LM knows an answer to; None with one prompt, and if answers have to be searched for."""
    specialties: Annotated[tuple[Specialty, ...], Field(exclude_if=lambda found: not found)] = ()
    """What each prompt is for; empty if the prompts' weights do not depend on x."""


WORDS_ALREADY = "the prompts are words already"
"""Why nothing is projected, for example because training kept its initial state."""


def trust_of(
    examination: "Examination", *, risk: float = 0.1, confidence: float | None = None, progress: Progress = None
) -> Trust:
    """Compute all measures on the test facts that were examined, with thresholds from dev facts, if there are any.

    Each prompt's answers must have been recorded. Only the nearest words of tuned prompts are asked again.
    """
    from askwell.evaluation.projection import projection_of

    test, dev, answers = examination.evaluations["test"], examination.evaluations.get("dev"), examination.prompt_answers
    if answers is None:
        raise BadOption("trust needs each prompt's answers to the test facts")
    missing: dict[str, str] = {}
    if dev is None:
        why = f"its threshold is learned on dev, and there are {examination.missing['dev']}"
        missing |= dict.fromkeys(("at_risk", "answer_sets"), why)
    by_x = outcomes_by_x(test.outcomes)
    confidences, right = questions_of(test.outcomes)
    if len(answers.prompts) < 2:
        missing["consistency"] = "the mixture has only one prompt, so agreement cannot be measured"
    if no_projection := _why_not_projected(examination.mixture):
        missing["projection"] = no_projection
    return Trust(
        relation=examination.relation.name,
        lm=examination.mixture.lm.identity.name,
        vocabulary=test.vocabulary,
        facts=len(test.outcomes),
        left_out=count_reasons(test.left_out),
        dev_facts=0 if dev is None else len(dev.outcomes),
        dev_left_out={} if dev is None else count_reasons(dev.left_out),
        questions=len(by_x),
        several_ys=sum(len({outcome.y for outcome in of_x}) > 1 for of_x in by_x),
        scores=test.micro,
        calibration=calibration(confidences, right),
        risk_coverage=risk_coverage(confidences, right),
        signals=compare_signals(confidences, answers, right),
        at_risk=None if dev is None else at_risk(dev.outcomes, test.outcomes, risk, confidence),
        answer_sets=None if dev is None else score_answer_sets(test.outcomes, learn_set_threshold(dev.outcomes)),
        consistency=consistency(answers, right) if len(answers.prompts) > 1 else None,
        projection=None if no_projection else projection_of(examination, progress),
        missing=missing,
        known=_known(examination, answers) if len(answers.prompts) > 1 else None,
        specialties=specialties(
            [examination.mixture.prompts[prompt].template.text for prompt in answers.prompts],
            [of_x[0].x for of_x in by_x],
            answers.weights,
            right,
        ),
    )


def _known(examination: "Examination", answers: "PromptAnswers") -> KnownShare | None:
    """Estimate how many x's are known; None if what each prompt answers is not known for sure."""
    mixture, outcomes = examination.mixture, examination.evaluations["test"].outcomes
    among = mixture.answering(examination.candidates, examination.encoded.kind)
    numbers = [among.numbers_of(of_x[0].golds) for of_x in outcomes_by_x(outcomes)]
    golds = [{number for number in of_x if number is not None} for of_x in numbers if of_x is not None]
    return known_share(given_answers(answers), golds) if among.is_listed else None


def at_risk(dev: Sequence[Outcome], test: Sequence[Outcome], risk: float, confidence: float | None = None) -> AtRisk:
    """Learn a threshold on dev, and count the test questions that it answers, and answers wrongly."""
    of_dev, of_test = questions_of(dev), questions_of(test)
    threshold = learn_threshold(*of_dev, risk=risk, confidence=confidence)
    given = of_test.confidences >= (math.inf if threshold.value is None else threshold.value)
    answered, wrong = int(given.sum()), int((given & ~of_test.right).sum())
    return AtRisk(
        risk=risk,
        confidence=confidence,
        threshold=threshold.value,
        dev_questions=len(of_dev.right),
        dev_coverage=threshold.coverage,
        dev_risk=threshold.risk,
        questions=len(given),
        answered=answered,
        wrong=wrong,
        coverage=answered / len(given),
        found_risk=wrong / answered if answered else None,
    )


def _why_not_projected(mixture: "Mixture") -> str | None:
    if mixture.spec.keeps_words:
        return "the prompts of a product are words already"
    starts_as_words = mixture.spec.initial == "words" and mixture.spec.noise == 0
    is_moved = not mixture.vectors.equal(mixture.initial_vectors)
    is_deep = any(bool(delta.any()) for delta in mixture.deltas.parameters())
    return None if is_moved or is_deep or not starts_as_words else WORDS_ALREADY


@dataclass(frozen=True, repr=False)
class FullEvaluation(Evaluation):
    """The outcomes of the facts of a split, with the controls and measures of trust that were asked for."""

    controls: Controls | None = None
    """The scores of answers that need no knowledge of x; None unless `controls` was asked for."""
    trust: Trust | None = None
    """How far the scores can be trusted; None unless `trust` was asked for."""


@checked
def evaluate(
    mixture: "Mixture",
    relation: Relation,
    split: SplitName = "test",
    *,
    candidates: GivenCandidates = None,
    controls: bool = False,
    trust: bool = False,
    risk: float = 0.1,
    confidence: float | None = None,
    top: int = 10,
    seed: int = 0,
    progress: Progress = None,
) -> FullEvaluation:
    """Score a mixture on the facts of a split, with the `top` most probable answers to each.

    `controls=True` also scores answers that need no knowledge of x. `trust=True` also measures calibration, agreement
    of the prompts and what can be answered at a `risk` (and `confidence`) on test, with thresholds from dev. If it
    takes long, a terminal or notebook shows a progress bar, unless `progress` is False; if it is a function, it is
    called with the number of facts done and the total instead.
    """
    from askwell.evaluation.examine import examine

    if trust and split != "test":
        raise BadOption("trust is measured on test, with thresholds learned on dev: leave `split` at test")
    splits: list[SplitName] = ["test", "dev"] if trust else [split]
    found = examine(
        mixture,
        relation,
        splits,
        candidates=as_candidates(candidates),
        top=top,
        controls=controls,
        prompts=trust,
        seed=seed,
        progress=progress,
    )
    return FullEvaluation(
        **vars(found.evaluations[split]),
        controls=found.controls if controls else None,
        trust=trust_of(found, risk=risk, confidence=confidence, progress=progress) if trust else None,
    )
