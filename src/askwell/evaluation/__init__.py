"""Evaluation: ranks and scores of a mixture on held-out facts."""

from askwell.evaluation.evaluate import Evaluation, Outcome, evaluate, rank_facts, together
from askwell.evaluation.metrics import Scores, macro, micro, scores_of

__all__ = ["Evaluation", "Outcome", "Scores", "evaluate", "macro", "micro", "rank_facts", "scores_of", "together"]
