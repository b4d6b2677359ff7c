"""How far a score can be believed: measures over what a mixture made of each fact."""

from askwell.trust.abstention import Abstention, RiskCoverage, Threshold, abstain, learn_threshold, risk_coverage
from askwell.trust.answer_sets import AnswerSets, learn_set_threshold, score_answer_sets
from askwell.trust.calibration import Bin, Calibration, calibration
from askwell.trust.gain import Gain, best_control, gain_over
from askwell.trust.partitions import (
    by_cardinality,
    by_control,
    by_frequency_of_y,
    by_length_of_x,
    by_seen_y,
    by_y_in_x,
    scores_of_parts,
)
from askwell.trust.questions import Questions, questions_of

__all__ = [
    "Abstention",
    "AnswerSets",
    "Bin",
    "Calibration",
    "Gain",
    "Questions",
    "RiskCoverage",
    "Threshold",
    "abstain",
    "best_control",
    "by_cardinality",
    "by_control",
    "by_frequency_of_y",
    "by_length_of_x",
    "by_seen_y",
    "by_y_in_x",
    "calibration",
    "gain_over",
    "learn_set_threshold",
    "learn_threshold",
    "questions_of",
    "risk_coverage",
    "score_answer_sets",
    "scores_of_parts",
]
