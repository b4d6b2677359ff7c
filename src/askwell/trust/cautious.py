"""Asking with a chosen risk: an answer that is too improbable is not given."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from askwell.errors import BadOption
from askwell.mixture import Mixture
from askwell.mixture.ask import Reply, ask
from askwell.mixture.candidates import Candidates
from askwell.trust.dev_answers import DevAnswers, kept_dev_answers

# The threshold is the probability of some dev answer; asked again among other x's, it can differ in its last digits.
_LAST_DIGITS = 1e-5


@dataclass(frozen=True)
class CautiousReply:
    """The most probable answers to a question, and whether the best of them is sure enough to be given."""

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
    sureness: float | None = None,
    top: int = 10,
    candidates: Candidates | None = None,
    dev: DevAnswers | None = None,
) -> Iterator[CautiousReply]:
    """For each x its most probable answers, and whether they are good enough for a risk, as learned from dev answers.

    The dev answers are those that were saved with the mixture, if none are given; they must be of the same candidates.
    """
    dev = dev or kept_dev_answers(mixture)
    if dev.candidates != (None if candidates is None else candidates.digest):
        raise BadOption(
            f"the threshold was learned among {dev.vocabulary}, and now other candidates are asked for: name the "
            "relation, whose dev facts are then asked among the same candidates (--facts)"
        )
    threshold = dev.threshold(risk, sureness).value
    replies = ask(mixture, xs, top=top, candidates=candidates)
    return (CautiousReply(x, tuple(answers), threshold) for x, answers in zip(xs, replies, strict=True))
