"""Asking at a chosen risk: an answer that is too improbable is withheld.

How probable an answer must be is learned from the mixture's answers to the relation's dev questions, which are saved
with the mixture.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from askwell.answers.candidates import Candidates
from askwell.answers.reply import PromptReply, Replies, count_reasons
from askwell.errors import BadOption, UsageError
from askwell.evaluation.confidence import Threshold, learn_threshold, questions_of
from askwell.evaluation.scoring import Evaluation
from askwell.mixture.learned_from import DevAnswers

if TYPE_CHECKING:  # answers of a server are shown without torch
    from askwell.mixture.mixture import Mixture


def threshold_of(dev: DevAnswers, risk: float, confidence: float | None = None) -> float:
    """Return the lowest probability at which at most a fraction `risk` of the given dev answers is wrong. With
    `confidence`, this holds for an upper bound of that fraction, see `learn_threshold`. The state of a tuned mixture
    was also chosen on dev, so elsewhere the risk can be a little higher."""
    found = learned_threshold(dev, risk, confidence).value
    if found is not None:
        return found
    at = "" if confidence is None else f" with a confidence of {100 * confidence:g} %"
    if not any(dev.right):
        raise BadOption(
            f"no threshold keeps a risk of {100 * risk:g} %{at}: none of the {len(dev.right)} dev questions of "
            f"{dev.relation} is answered right, so there is nothing to learn a threshold from"
        )
    problem = "even the most probable answers are wrong too often"
    if confidence is not None:
        problem += " to be confident, or there are too few of them"
    way_out = "choose a higher risk" + ("" if confidence is None else " or a lower confidence (or none)")
    raise BadOption(
        f"no threshold keeps a risk of {100 * risk:g} %{at}: on the {len(dev.right)} dev questions of "
        f"{dev.relation}, of which {sum(dev.right)} are answered right, {problem}; {way_out}"
    )


def learned_threshold(dev: DevAnswers, risk: float, confidence: float | None = None) -> Threshold:
    """Return the threshold for a risk, if there is one, with its risk and coverage on dev."""
    return learn_threshold(
        np.array(dev.probabilities), np.array(dev.right, dtype=bool), risk=risk, confidence=confidence
    )


def dev_answers(evaluation: Evaluation, candidates: Candidates | None = None) -> DevAnswers:
    """Return the dev answers to keep from an evaluation on the dev facts of one relation, among the same candidates."""
    names = {outcome.relation for outcome in evaluation.outcomes}
    if evaluation.split != "dev" or len(names) != 1:
        raise UsageError("a threshold is learned from the dev facts of one relation")
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


def need_dev_answers(saved: DevAnswers | None) -> DevAnswers:
    """Return the dev answers that were saved with a mixture; an error says what to do if there are none."""
    if saved is None:
        raise UsageError(
            "the mixture has no record of its answers to dev questions (it is untuned, or was saved by an older "
            "version), so no threshold is known: name its `relation`, and its dev facts are asked first",
            relation="relation with --facts",
        )
    return saved


def is_enough(probability: float, threshold: float | None) -> bool:
    """Tell whether an answer is probable enough to be given. The threshold is the probability of some dev answer; asked
    again among other x's, that can differ in its last digits."""
    return threshold is None or probability >= threshold * (1 - 1e-5)


@dataclass(frozen=True)
class RiskLimits:
    """The fraction of the given answers that may be wrong, and the confidence with which that is kept, if any."""

    risk: float
    confidence: float | None = None


@dataclass(frozen=True)
class AnsweredX:
    """The most probable answers to an x; if requested, whether the best of them is probable enough to be given, and
    what each prompt answers by itself."""

    answers: Replies
    limits: RiskLimits | None = None
    threshold: float = 0.0
    prompts: tuple[PromptReply, ...] | None = None

    @property
    def x(self) -> str:
        """What was asked about."""
        return self.answers.x

    @property
    def answered(self) -> bool:
        """Whether the best answer is at least as probable as the threshold."""
        return is_enough(self.answers[0].probability, self.threshold)

    def as_json(self) -> dict[str, Any]:
        """Return the question and its answers as plain JSON."""
        document: dict[str, Any] = {"x": self.x}
        if self.limits is not None:
            document |= {"answered": self.answered, "threshold": self.threshold, **asdict(self.limits)}
        document["answers"] = [asdict(answer) for answer in self.answers]
        if self.answers.unseen:
            document["unseen"] = self.answers.unseen
        if self.prompts is not None:
            document["prompts"] = [
                {"prompt": one.template, "weight": one.weight, "y": one.y, "probability": one.probability}
                for one in self.prompts
            ]
        return document


def ask_all(
    mixture: "Mixture",
    xs: Sequence[str],
    *,
    top: int = 10,
    candidates: Candidates | None = None,
    dev: DevAnswers | None = None,
    limits: RiskLimits | None = None,
    each_prompt: bool = False,
) -> Iterator[AnsweredX]:
    """Ask about each x; with `limits`, which need `dev` answers among the same candidates, only what is probable enough
    counts as answered; with `each_prompt`, every prompt is also asked by itself."""
    candidates, threshold = candidates or mixture.candidates, 0.0
    if limits is not None and dev is not None:
        if dev.candidates != (None if candidates is None else candidates.digest):
            raise BadOption(
                f"the threshold was learned among {dev.vocabulary}, but now the candidates differ: name the relation "
                "with `facts`, and its dev facts are asked with the same candidates",
                facts="--facts",
            )
        threshold = threshold_of(dev, limits.risk, limits.confidence)
    alone: Iterable[Sequence[PromptReply] | None] = repeat(None, len(xs))
    if each_prompt:
        alone = mixture.answering(candidates).ask_each_prompt(xs)
    return (
        AnsweredX(replies, limits, threshold, None if of_prompts is None else tuple(of_prompts))
        for replies, of_prompts in zip(mixture.replies(xs, top, candidates), alone, strict=True)
    )
