"""Answers questions: what does the mixture say of an x?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from askwell.errors import UserMistake
from askwell.lms.batches import words_of
from askwell.mixture.answers import Candidates
from askwell.mixture.encode import why_unaskable

if TYPE_CHECKING:
    from askwell.mixture.mixture import Mixture

# Each x holds prompts × answers numbers while it is answered, so that every answer can say what each prompt thinks.
_NUMBERS_AT_ONCE = 2**25


@dataclass(frozen=True)
class Reply:
    """One answer to a question."""

    y: str
    probability: float
    by_prompt: tuple[float, ...]
    """The probability that each prompt gives to this answer."""


def ask(
    mixture: "Mixture", xs: Sequence[str], *, top: int = 10, candidates: Candidates | None = None
) -> Iterator[list[Reply]]:
    """For each x its most probable answers, best first."""
    for x, reason in zip(xs, why_unaskable(mixture, xs), strict=True):
        if reason is not None:
            raise UserMistake(f"{x[:60]!r} cannot be asked: {reason}")
    allowed = candidates.answers(mixture)[0] if candidates else None
    together = max(1, _NUMBERS_AT_ONCE // (mixture.answer_space.count * len(mixture.prompts)))
    for start in range(0, len(xs), together):
        yield from _ask_some(mixture, xs[start : start + together], top, allowed)


@torch.no_grad()
def _ask_some(mixture: "Mixture", xs: Sequence[str], top: int, allowed: torch.Tensor | None) -> Iterator[list[Reply]]:
    words = words_of(xs, mixture.lm.wording, mixture.lm.device)
    everyone = torch.arange(len(xs), device=mixture.lm.device)
    by_prompt = torch.stack([mixture.prompt_log_probs(words, everyone, t) for t in range(len(mixture.prompts))], 1)
    log_probs = mixture.combine(words, everyone, by_prompt.unbind(1))
    if allowed is None:
        allowed = torch.arange(log_probs.shape[1], device=log_probs.device)
    # A stable sort, so that equally probable answers always stand in the same order.
    best_first = log_probs[:, allowed].sort(dim=1, descending=True, stable=True).indices[:, :top]
    for number in range(len(xs)):
        answers = allowed[best_first[number]]
        yield [
            Reply(mixture.answer_space.word(answer), probability, tuple(of_prompts))
            for answer, probability, of_prompts in zip(
                answers.tolist(),
                log_probs[number, answers].exp().tolist(),
                by_prompt[number][:, answers].exp().T.tolist(),
                strict=True,
            )
        ]
