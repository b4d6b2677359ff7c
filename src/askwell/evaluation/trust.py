"""All that can be said of how far one mixture's scores on one relation can be believed, gathered in one place."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from askwell.data.facts import Relation
from askwell.errors import BadOption, NothingLeft
from askwell.evaluation.abstention import RiskCoverage, abstain, learn_threshold, risk_coverage
from askwell.evaluation.agreement import (
    Consistency,
    SignalAreas,
    compare_signals,
    consistency,
    prompt_answers,
    signals_of,
)
from askwell.evaluation.evaluate import Evaluation, evaluate
from askwell.evaluation.metrics import Scores
from askwell.evaluation.nearest_words import Projection, projection_scores
from askwell.evaluation.questions import (
    AnswerSets,
    Calibration,
    calibration,
    learn_set_threshold,
    outcomes_by_x,
    questions_of,
    score_answer_sets,
)
from askwell.mixture.answers import Candidates
from askwell.mixture.encode import count_reasons
from askwell.mixture.mixture import Mixture


@dataclass(frozen=True)
class AtRisk:
    """What is answered if a threshold that keeps a risk on dev decides; shares are from 0 to 1."""

    risk: float
    sureness: float | None
    threshold: float | None
    """The lowest probability of an answer that is given; None if no threshold keeps the risk on dev."""
    dev_questions: int
    dev_coverage: float
    dev_risk: float
    questions: int
    answered: int
    wrong: int

    @property
    def coverage(self) -> float:
        """The share of questions that is answered."""
        return self.answered / self.questions

    @property
    def found_risk(self) -> float | None:
        """The share of the answers given that is wrong; None if none is given."""
        return self.wrong / self.answered if self.answered else None

    def as_json(self) -> dict[str, Any]:
        """All figures by name."""
        return asdict(self) | {"coverage": self.coverage, "found_risk": self.found_risk}


@dataclass(frozen=True)
class Measures:
    """The figures of one mixture on the test facts of one relation; what could not be measured is None, and `missing`
    says why."""

    relation: str
    lm: str
    vocabulary: str
    """Among which answers y was ranked."""
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

    def as_json(self) -> dict[str, Any]:
        """All figures by name, with what they are figures of."""
        return {
            "relation": self.relation,
            "lm": self.lm,
            "split": "test",
            "vocabulary": self.vocabulary,
            "averaging": "scores over facts (micro), the rest over questions",
            "facts": self.facts,
            "left_out": self.left_out,
            "dev_facts": self.dev_facts,
            "dev_left_out": self.dev_left_out,
            "questions": self.questions,
            "several_ys": self.several_ys,
            "scores": self.scores,
            "calibration": self.calibration.as_json(),
            "risk_coverage": self.risk_coverage.as_json(),
            "signals": self.signals.as_json(),
            "at_risk": _json_or_none(self.at_risk),
            "answer_sets": _json_or_none(self.answer_sets),
            "consistency": _json_or_none(self.consistency),
            "projection": _json_or_none(self.projection),
            "missing": self.missing,
        }


WORDS_ALREADY = "the prompts are words already"
"""Why nothing is projected: training has kept the state in which it began, say."""


def measures_of(
    mixture: Mixture,
    relation: Relation,
    *,
    test: Evaluation | None = None,
    dev: Evaluation | None = None,
    candidates: Candidates | None = None,
    risk: float = 0.1,
    sureness: float | None = None,
    bins: int = 10,
    progress: Callable[[int, int], None] | None = None,
) -> Measures:
    """All measures on the relation's test facts, with thresholds from its dev facts.

    Evaluations that are there already can be given; they must be among the same candidates.
    """
    for evaluation, split in ((test, "test"), (dev, "dev")):
        if evaluation is not None and evaluation.split != split:
            raise BadOption(f"the evaluation given for {split} is one of {evaluation.split} facts")
    missing: dict[str, str] = {}
    test = test or evaluate(mixture, relation, candidates=candidates, progress=progress)
    if dev is None:
        try:
            dev = evaluate(mixture, relation, split="dev", candidates=candidates, progress=progress)
        except NothingLeft as nothing:
            missing |= dict.fromkeys(
                ("at_risk", "answer_sets"), f"its threshold is learned on dev, and there are {nothing}"
            )
    by_x = outcomes_by_x(test.outcomes)
    questions = questions_of(test.outcomes)
    answers = prompt_answers(mixture, [of_x[0].x for of_x in by_x], candidates=candidates)
    several_prompts = len(answers.prompts) > 1
    signals = signals_of(questions.confidences, answers)
    if not several_prompts:
        missing["consistency"] = "the mixture asks with one prompt, which has none to agree with"
        signals = {"probability": signals["probability"]}
    if no_projection := _why_not_projected(mixture):
        missing["projection"] = no_projection
    return Measures(
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
        at_risk=None if dev is None else _at_risk(dev, test, risk, sureness),
        answer_sets=None if dev is None else score_answer_sets(test.outcomes, learn_set_threshold(dev.outcomes)),
        consistency=consistency(answers, questions.right) if several_prompts else None,
        projection=None
        if no_projection
        else projection_scores(mixture, relation, tuned=test, candidates=candidates, progress=progress),
        missing=missing,
    )


def _at_risk(dev: Evaluation, test: Evaluation, risk: float, sureness: float | None) -> AtRisk:
    of_dev, of_test = questions_of(dev.outcomes), questions_of(test.outcomes)
    threshold = learn_threshold(of_dev.confidences, of_dev.right, risk=risk, sureness=sureness)
    found = abstain(threshold.value, of_test.confidences, of_test.right)
    return AtRisk(
        risk=risk,
        sureness=sureness,
        threshold=threshold.value if threshold.value < float("inf") else None,
        dev_questions=len(of_dev.right),
        dev_coverage=threshold.coverage,
        dev_risk=threshold.risk,
        questions=found.questions,
        answered=found.answered,
        wrong=found.wrong,
    )


def _why_not_projected(mixture: Mixture) -> str | None:
    if mixture.spec.combine == "product":
        return "the prompts of a product are words already"
    starts_as_words = mixture.spec.initial == "words" and mixture.spec.noise == 0
    is_moved = not torch.equal(mixture.vectors, mixture.initial_vectors)
    is_deep = any(bool(delta.any()) for delta in mixture.deltas.parameters())
    return None if is_moved or is_deep or not starts_as_words else WORDS_ALREADY


def _json_or_none(figures: AtRisk | AnswerSets | Consistency | Projection | None) -> dict[str, Any] | None:
    return None if figures is None else figures.as_json()
