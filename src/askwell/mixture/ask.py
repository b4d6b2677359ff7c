"""Answers questions: what does the mixture say of an x?"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from askwell.errors import UserMistake
from askwell.lms.batches import words_of
from askwell.mixture.answer_search import AnswerSearch
from askwell.mixture.answers import AnswerKind
from askwell.mixture.candidates import Candidates, CandidateScorer
from askwell.mixture.encode import default_kind, why_unaskable
from askwell.mixture.search import SearchLimits
from askwell.specs.mixture import BEAMS

if TYPE_CHECKING:
    from askwell.mixture.mixture import Mixture

# Each x holds prompts × answers numbers while it is answered, so that every answer can say what each prompt thinks.
_NUMBERS_AT_ONCE = 2**25
_QUESTIONS_AT_ONCE = 32


@dataclass(frozen=True)
class Reply:
    """One answer to a question."""

    y: str
    probability: float
    by_prompt: tuple[float, ...]
    """The probability that each prompt gives to this answer."""


def ask(
    mixture: "Mixture",
    xs: Sequence[str],
    *,
    top: int = 10,
    candidates: Candidates | None = None,
    beams: int = BEAMS,
) -> Iterator[list[Reply]]:
    """For each x its most probable answers, best first.

    Answers of any length are searched; with more `beams`, more of their beginnings are looked into at once and in all.
    """
    kind = default_kind(mixture)
    for x, reason in zip(xs, why_unaskable(mixture, xs, kind), strict=True):
        if reason is not None:
            raise UserMistake(f"{x[:60]!r} cannot be asked: {reason}")
    candidates = candidates or mixture.candidates
    if candidates is not None and (kind.any_length or candidates.labels is not None):
        yield from _choose(CandidateScorer(mixture, candidates, kind), xs, top)
        return
    if kind.any_length:
        yield from _search(mixture, xs, top, kind, beams)
        return
    allowed = candidates.answers(mixture)[0] if candidates else None
    together = max(1, _NUMBERS_AT_ONCE // (mixture.answer_space.count * len(mixture.prompts)))
    for start in range(0, len(xs), together):
        yield from _ask_some(mixture, xs[start : start + together], top, allowed)


def _search(mixture: "Mixture", xs: Sequence[str], top: int, kind: AnswerKind, beams: int) -> Iterator[list[Reply]]:
    # The beginnings of answers in which it is looked: the first, and two more rounds of as many as there are beams.
    limits = SearchLimits(answers=top, tokens=kind.longest, at_once=beams, opened=1 + 2 * beams)
    search = AnswerSearch(mixture, limits, kind.lengths_on(mixture.lm))
    words = words_of(xs, mixture.lm.wording, mixture.lm.device)
    for some in torch.arange(len(xs), device=mixture.lm.device).split(_QUESTIONS_AT_ONCE):
        for found in search.best(words, some):
            yield [
                Reply(answer.text, math.exp(answer.log_probability), tuple(map(math.exp, answer.by_prompt)))
                for answer in found.answers
            ]


@torch.no_grad()
def _choose(scorer: CandidateScorer, xs: Sequence[str], top: int) -> Iterator[list[Reply]]:
    mixture = scorer.mixture
    words = words_of(xs, mixture.lm.wording, mixture.lm.device)
    for some in torch.arange(len(xs), device=mixture.lm.device).split(_QUESTIONS_AT_ONCE):
        log_p_x = mixture.log_p_x(words, some) if mixture.weighting.reads_x else None
        by_prompt = scorer.by_prompt(words, some)
        log_probs = scorer.combine(by_prompt, mixture.log_weights(len(some), log_p_x)).log_softmax(1)
        best = log_probs.sort(dim=1, descending=True, stable=True).indices[:, :top]
        of_prompts = by_prompt.log_softmax(2).exp()
        for row, labels in enumerate(best.tolist()):
            probabilities = log_probs[row, labels].exp().tolist()
            by_label = of_prompts[row][:, labels].T.tolist()
            yield [
                Reply(scorer.labels[label], probability, tuple(of_label))
                for label, probability, of_label in zip(labels, probabilities, by_label, strict=True)
            ]


@torch.no_grad()
def _ask_some(mixture: "Mixture", xs: Sequence[str], top: int, allowed: torch.Tensor | None) -> Iterator[list[Reply]]:
    words = words_of(xs, mixture.lm.wording, mixture.lm.device)
    everyone = torch.arange(len(xs), device=mixture.lm.device)
    by_prompt = torch.stack([mixture.prompt_log_probs(words, everyone, t) for t in range(len(mixture.prompts))], 1)
    log_probs = mixture.combine(words, everyone, by_prompt.unbind(1))
    if allowed is None:
        allowed = torch.arange(log_probs.shape[1], device=log_probs.device)
    else:  # nothing else can be answered, so probabilities sum to one
        log_probs = log_probs - log_probs[:, allowed].logsumexp(1, keepdim=True)
        by_prompt = by_prompt - by_prompt[..., allowed].logsumexp(2, keepdim=True)
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
