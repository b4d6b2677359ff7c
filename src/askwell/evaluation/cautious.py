"""Asking at a chosen risk: an answer that is too improbable is withheld.

How probable an answer must be is learned from the mixture's answers to the relation's dev questions, which are saved
with the mixture.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from askwell.errors import BadOption, DamagedFile, UserMistake
from askwell.evaluation.abstention import Threshold, learn_threshold
from askwell.evaluation.calibration import questions_of
from askwell.evaluation.evaluate import Evaluation
from askwell.mixture.ask import ask
from askwell.mixture.candidates import Candidates
from askwell.mixture.encode import count_reasons
from askwell.mixture.mixture import Mixture
from askwell.mixture.reply import Reply


@dataclass(frozen=True)
class DevAnswers:
    """The best answers of a mixture to dev questions: how probable each was, and whether it was right."""

    relation: str
    vocabulary: str
    candidates: str | None
    """The hash of the candidate vocabulary, None for all answers of the LM."""
    facts: int
    left_out: dict[str, int]
    """How many dev facts were not asked, by reason."""
    probabilities: tuple[float, ...]
    """Of the best answer to each question, the highest first, so that the order of facts does not matter."""
    right: tuple[int, ...]
    """1 where this answer is right, 0 where it is wrong."""

    def threshold(self, risk: float, confidence: float | None = None) -> float:
        """The lowest probability that keeps the fraction of wrong answers among the given dev answers at `risk`. With
        `confidence` an upper bound of that fraction is kept, see `learn_threshold`. The dev facts also chose the state
        of a tuned mixture that was kept, so elsewhere the risk can be a little higher."""
        found = self.learned(risk, confidence).value
        if found is not None:
            return found
        at = "" if confidence is None else f" with a confidence of {100 * confidence:g} %"
        problem = "even the most probable answers are wrong too often"
        if confidence is not None:
            problem += " to be confident, or there are too few of them"
        way_out = "choose a higher risk" + ("" if confidence is None else " or a lower confidence (or none)")
        raise BadOption(
            f"no threshold keeps a risk of {100 * risk:g} %{at}: on the {len(self.right)} dev questions of "
            f"{self.relation}, of which {sum(self.right)} are answered right, {problem}; {way_out}"
        )

    def learned(self, risk: float, confidence: float | None = None) -> Threshold:
        """The threshold for a risk, if there is one, with its risk and coverage on dev."""
        probabilities, right = np.array(self.probabilities), np.array(self.right, dtype=bool)
        return learn_threshold(probabilities, right, risk=risk, confidence=confidence)


def dev_answers(evaluation: Evaluation, candidates: Candidates | None = None) -> DevAnswers:
    """What to keep of an evaluation on the dev facts of one relation, among the same candidates."""
    names = {outcome.relation for outcome in evaluation.outcomes}
    if evaluation.split != "dev" or len(names) != 1:
        raise UserMistake("a threshold is learned from the dev facts of one relation")
    questions = questions_of(evaluation.outcomes)
    order = np.lexsort((~questions.right, -questions.confidences))
    return DevAnswers(
        relation=names.pop(),
        vocabulary=evaluation.vocabulary,
        candidates=None if candidates is None else candidates.digest,
        facts=len(evaluation.outcomes),
        left_out=count_reasons(evaluation.left_out),
        probabilities=tuple(questions.confidences[order].tolist()),
        right=tuple(questions.right[order].astype(int).tolist()),
    )


def dev_answers_from(document: Mapping[str, Any] | None) -> DevAnswers:
    """The dev answers that were saved with a mixture; an error says what to do if there are none."""
    if not document:
        raise UserMistake(
            "the mixture has no record of its answers to dev questions (it is untuned, or was saved before there was "
            "one), so no threshold is known: name its relation, whose dev facts are then asked first (--facts)"
        )
    try:
        return TypeAdapter(DevAnswers).validate_python(document)
    except ValidationError:
        raise DamagedFile("the mixture's record of its answers to dev questions is not of the known form") from None


# The threshold is the probability of some dev answer; asked again among other x's, it can differ in its last digits.
_LAST_DIGITS = 1e-5


@dataclass(frozen=True)
class CautiousReply:
    """The most probable answers to a question, and whether the best of them is probable enough to be given."""

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
    confidence: float | None = None,
    top: int = 10,
    candidates: Candidates | None = None,
    dev: DevAnswers,
) -> Iterator[CautiousReply]:
    """For each x its most probable answers, and whether they are good enough for a risk, as learned from dev answers.

    The dev answers, such as those that were saved with the mixture, must be of the same candidates.
    """
    candidates = candidates or mixture.candidates
    if dev.candidates != (None if candidates is None else candidates.digest):
        raise BadOption(
            f"the threshold was learned among {dev.vocabulary}, and now other candidates are asked for: name the "
            "relation, whose dev facts are then asked among the same candidates (--facts)"
        )
    threshold = dev.threshold(risk, confidence)
    replies = ask(mixture, xs, top=top, candidates=candidates)
    return (CautiousReply(x, tuple(answers), threshold) for x, answers in zip(xs, replies, strict=True))
