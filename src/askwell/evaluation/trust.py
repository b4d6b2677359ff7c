"""Trust: measures of how far one mixture's scores on one relation can be believed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from askwell.answers.candidates import GivenCandidates, as_candidates
from askwell.answers.encode import EncodedRelation, count_reasons
from askwell.calls import checked
from askwell.data.facts import Relation
from askwell.errors import BadOption
from askwell.evaluation.abstention import RiskCoverage, abstain, learn_threshold, risk_coverage
from askwell.evaluation.agreement import Consistency, SignalAreas, compare_signals, consistency, signals_of
from askwell.evaluation.answer_sets import AnswerSets, learn_set_threshold, score_answer_sets
from askwell.evaluation.calibration import Calibration, calibration, outcomes_by_x, questions_of
from askwell.evaluation.examine import Examination
from askwell.evaluation.metrics import Scores
from askwell.evaluation.projection import Projection, projection_scores
from askwell.evaluation.scoring import Evaluation
from askwell.mixture.mixture import Mixture


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


WORDS_ALREADY = "the prompts are words already"
"""Why nothing is projected, for example because training kept its initial state."""


@checked
def trust_of(
    mixture: Mixture,
    relation: Relation,
    examination: Examination,
    *,
    candidates: GivenCandidates = None,
    risk: float = 0.1,
    confidence: float | None = None,
    bins: int = 10,
    facts: EncodedRelation | None = None,
    progress: Callable[[int, int], None] | bool | None = None,
) -> Trust:
    """Compute all measures on the relation's test facts, with thresholds from dev facts, as far as examined.

    The examination must be among the same candidates. Only the nearest words of tuned prompts are asked again.
    """
    candidates = as_candidates(candidates)
    test, dev, answers = (
        examination.evaluations.get("test"), examination.evaluations.get("dev"), examination.prompt_answers
    )  # fmt: skip
    if test is None or answers is None:
        raise BadOption("trust_of needs each prompt's answers to the test facts: examine test, with prompts=True")
    missing: dict[str, str] = {}
    if dev is None:
        why = f"there are {examination.missing['dev']}" if "dev" in examination.missing else "dev was not asked"
        missing |= dict.fromkeys(("at_risk", "answer_sets"), f"its threshold is learned on dev, and {why}")
    by_x = outcomes_by_x(test.outcomes)
    questions = questions_of(test.outcomes)
    several_prompts = len(answers.prompts) > 1
    signals = signals_of(questions.confidences, answers)
    if not several_prompts:
        missing["consistency"] = "the mixture has only one prompt, so agreement cannot be measured"
        signals = {"probability": signals["probability"]}
    if no_projection := _why_not_projected(mixture):
        missing["projection"] = no_projection
    return Trust(
        relation=relation.name,
        lm=mixture.lm.identity.name,
        vocabulary=test.vocabulary,
        facts=len(test.outcomes),
        left_out=count_reasons(test.left_out),
        dev_facts=0 if dev is None else len(dev.outcomes),
        dev_left_out={} if dev is None else count_reasons(dev.left_out),
        questions=len(by_x),
        several_ys=sum(len({outcome.y for outcome in of_x}) > 1 for of_x in by_x),
        scores=test.micro,
        calibration=calibration(questions.confidences, questions.right, bins=bins),
        risk_coverage=risk_coverage(questions.confidences, questions.right),
        signals=compare_signals(signals, questions.right),
        at_risk=None if dev is None else _at_risk(dev, test, risk, confidence),
        answer_sets=None if dev is None else score_answer_sets(test.outcomes, learn_set_threshold(dev.outcomes)),
        consistency=consistency(answers, questions.right) if several_prompts else None,
        projection=None
        if no_projection
        else projection_scores(mixture, relation, tuned=test, candidates=candidates, facts=facts, progress=progress),
        missing=missing,
    )


def _at_risk(dev: Evaluation, test: Evaluation, risk: float, confidence: float | None) -> AtRisk:
    of_dev, of_test = questions_of(dev.outcomes), questions_of(test.outcomes)
    threshold = learn_threshold(of_dev.confidences, of_dev.right, risk=risk, confidence=confidence)
    found = abstain(threshold.value, of_test.confidences, of_test.right)
    return AtRisk(
        risk=risk,
        confidence=confidence,
        threshold=threshold.value,
        dev_questions=len(of_dev.right),
        dev_coverage=threshold.coverage,
        dev_risk=threshold.risk,
        questions=found.questions,
        answered=found.answered,
        wrong=found.wrong,
        coverage=found.coverage,
        found_risk=found.risk if found.answered else None,
    )


def _why_not_projected(mixture: Mixture) -> str | None:
    if mixture.spec.combine == "product":
        return "the prompts of a product are words already"
    starts_as_words = mixture.spec.initial == "words" and mixture.spec.noise == 0
    is_moved = not torch.equal(mixture.vectors, mixture.initial_vectors)
    is_deep = any(bool(delta.any()) for delta in mixture.deltas.parameters())
    return None if is_moved or is_deep or not starts_as_words else WORDS_ALREADY
