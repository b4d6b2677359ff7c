"""The choice of a way of answering, by what counts as an answer."""

from askwell.answers.candidate_answers import CandidateAnswers
from askwell.answers.candidates import Candidates
from askwell.answers.kind import AnswerKind
from askwell.answers.one_token import OneTokenAnswers
from askwell.answers.open import OpenAnswers
from askwell.answers.strategy import Answers
from askwell.prompts.prompt_set import PromptSet


def answers_for(prompts: PromptSet, kind: AnswerKind, candidates: Candidates | None = None) -> Answers:
    """Return the way to answer with answers of this kind, among candidates if there are any."""
    if candidates is not None and (kind.any_length or candidates.labels is not None):
        return CandidateAnswers(prompts, candidates, kind)
    return OpenAnswers(prompts, kind) if kind.any_length else OneTokenAnswers(prompts, candidates)
