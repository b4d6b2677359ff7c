"""What a mixture answered to dev questions, kept with it, and the threshold on its probability that follows from it."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from askwell.errors import BadOption, DamagedFile, UserMistake
from askwell.evaluation import Evaluation, evaluate
from askwell.facts import Relation
from askwell.mixture import Mixture
from askwell.mixture.candidates import Candidates
from askwell.mixture.encode import count_reasons
from askwell.trust.abstention import Threshold, learn_threshold
from askwell.trust.questions import Questions, questions_of


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
