"""How far a score can be believed: measures over what a mixture made of each fact."""

from askwell.trust.abstention import Abstention, RiskCoverage, Threshold, abstain, learn_threshold, risk_coverage
from askwell.trust.answer_sets import AnswerSets, learn_set_threshold, score_answer_sets
from askwell.trust.calibration import Bin, Calibration, calibration
from askwell.trust.cautious import CautiousReply, ask_cautiously
from askwell.trust.consistency import Agreement, Consistency, RunConsistency, RunPair, consistency, run_consistency
from askwell.trust.dev_answers import DevAnswers, dev_answers, keep_dev_answers, kept_dev_answers
from askwell.trust.disagreement import SignalAreas, compare_signals, disagreement, signals_of
from askwell.trust.gain import Gain, best_control, gain_over
from askwell.trust.knowledge import Answered, ControlScores, Knowledge, knowledge
from askwell.trust.measures import AtRisk, Measures, measures_of
from askwell.trust.partitions import (
    by_cardinality,
    by_control,
    by_frequency_of_y,
    by_length_of_x,
    by_seen_y,
    by_y_in_x,
    partitions_of,
    scores_of_parts,
)
from askwell.trust.prior import (
    CheapControls,
    Prior,
    cheap_controls,
    corrected_outcomes,
    majority,
    masked_prior,
    prior_outcomes,
    prompt_prior,
)
from askwell.trust.projected import Projection, project, projection_scores
from askwell.trust.prompt_answers import PromptAnswers, prompt_answers
from askwell.trust.questions import Questions, questions_of
from askwell.trust.spread import Spread, spread_of, spreads_of

__all__ = [
    "Abstention",
    "Agreement",
    "AnswerSets",
    "Answered",
    "AtRisk",
    "Bin",
    "Calibration",
    "CautiousReply",
    "CheapControls",
    "Consistency",
    "ControlScores",
    "DevAnswers",
    "Gain",
    "Knowledge",
    "Measures",
    "Prior",
    "Projection",
    "PromptAnswers",
    "Questions",
    "RiskCoverage",
    "RunConsistency",
    "RunPair",
    "SignalAreas",
    "Spread",
    "Threshold",
    "abstain",
    "ask_cautiously",
    "best_control",
    "by_cardinality",
    "by_control",
    "by_frequency_of_y",
    "by_length_of_x",
    "by_seen_y",
    "by_y_in_x",
    "calibration",
    "cheap_controls",
    "compare_signals",
    "consistency",
    "corrected_outcomes",
    "dev_answers",
    "disagreement",
    "gain_over",
    "keep_dev_answers",
    "kept_dev_answers",
    "knowledge",
    "learn_set_threshold",
    "learn_threshold",
    "majority",
    "masked_prior",
    "measures_of",
    "partitions_of",
    "prior_outcomes",
    "project",
    "projection_scores",
    "prompt_answers",
    "prompt_prior",
    "questions_of",
    "risk_coverage",
    "run_consistency",
    "score_answer_sets",
    "scores_of_parts",
    "signals_of",
    "spread_of",
    "spreads_of",
]
