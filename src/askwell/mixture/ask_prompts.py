"""What each prompt of a mixture contributes: its answer if it were the only one, and its weight for an x."""

import math
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.errors import UserMistake
from askwell.lms.batches import Words, words_of
from askwell.mixture import distributions
from askwell.mixture.answer_search import AnswerSearch, LikelyAnswers
from askwell.mixture.answers import AnswerKind
from askwell.mixture.ask import ask, kind_to_ask, search_limits
from askwell.mixture.candidates import Candidates, CandidateScorer, GivenCandidates, as_candidates
from askwell.mixture.distributions import answer_log_probs
from askwell.mixture.encode import default_kind, why_unaskable
from askwell.mixture.mixture import Mixture
from askwell.mixture.reply import PromptReply

_QUESTIONS_AT_ONCE = 32


def ask_each_prompt(
    mixture: Mixture, xs: str | Sequence[str], *, candidates: GivenCandidates = None
) -> Iterator[list[PromptReply]]:
    """For each x the best answer of every prompt by itself, in the order of the prompts, without dropped ones."""
    xs = [xs] if isinstance(xs, str) else list(xs)
    kind, chosen = kind_to_ask(mixture, xs), as_candidates(candidates) or mixture.candidates
    words = words_of(xs, mixture.lm.wording, mixture.lm.device)
    every = torch.arange(len(xs), device=mixture.lm.device)
    if kind.any_length and chosen is None:
        yield from _searched(mixture, words, every, kind)
    else:
        yield from _listed(mixture, words, every, kind, chosen)


def _searched(
    mixture: Mixture, words: Words, every: Int[Tensor, " xs"], kind: AnswerKind
) -> Iterator[list[PromptReply]]:
    prompts, limits = mixture.tuned.kept.tolist(), search_limits(1, kind, 1)
    searches = [AnswerSearch(mixture, limits, kind, only=prompt) for prompt in prompts]
    certain = torch.zeros(len(mixture.prompts), device=mixture.lm.device)
    for some in every.split(_QUESTIONS_AT_ONCE):
        by_prompt = [search.best(words, some, log_weights=certain) for search in searches]
        for of_x in zip(*by_prompt, strict=True):
            yield [_reply(mixture, prompt, *_best(found)) for prompt, found in zip(prompts, of_x, strict=True)]


def _best(found: LikelyAnswers) -> tuple[str, float]:
    return (found.answers[0].text, math.exp(found.answers[0].log_probability)) if found.answers else ("", 0.0)


def _reply(mixture: Mixture, prompt: int, y: str, probability: float) -> PromptReply:
    weight = float(mixture.weights.detach()[prompt])
    return PromptReply(prompt, mixture.prompts[prompt].template.text, weight, y, probability)


@torch.no_grad()
def _listed(
    mixture: Mixture, words: Words, every: Int[Tensor, " xs"], kind: AnswerKind, candidates: Candidates | None
) -> Iterator[list[PromptReply]]:
    """Of one-token answers and candidates, all are scored; among candidates probabilities sum to one."""
    scorer, allowed = None, mixture.answer_space.askable
    if candidates is not None and (kind.any_length or candidates.labels is not None):
        scorer = CandidateScorer(mixture, candidates, kind)
    elif candidates is not None:
        allowed = candidates.answers(mixture)[0]
    for x in every.split(1):
        log_probs = _of_tokens(mixture, words, x, allowed) if scorer is None else scorer.by_prompt(words, x)[0]
        best = (log_probs if candidates is None else log_probs.log_softmax(1)).max(1)
        replies = []
        for prompt in mixture.tuned.kept.tolist():
            number = int(best.indices[prompt])
            y = mixture.answer_space.word(int(allowed[number])) if scorer is None else scorer.labels[number]
            replies.append(_reply(mixture, prompt, y, float(best.values[prompt].detach().exp())))
        yield replies


def _of_tokens(
    mixture: Mixture, words: Words, x: Int[Tensor, " one"], allowed: Int[Tensor, " allowed"]
) -> Float[Tensor, "prompts allowed"]:
    every = range(len(mixture.prompts))
    return torch.cat([distributions.prompt_log_probs(mixture, words, x, prompt) for prompt in every])[:, allowed]


@torch.no_grad()
def prompts_behind(mixture: Mixture, x: str) -> list[PromptReply]:
    """Each prompt with its weight for x and its own best answer, heaviest first.

    If answers are searched (of any length, or labels), a prompt's own answer is the one that it finds most probable
    among the mixture's best ten.
    """
    kind = default_kind(mixture)
    if (reason := why_unaskable(mixture, [x], kind)[0]) is not None:
        raise UserMistake(f"{x[:60]!r} cannot be asked: {reason}")
    words = words_of([x], mixture.lm.wording, mixture.lm.device)
    only = torch.zeros(1, dtype=torch.long, device=mixture.lm.device)
    of_mixture = mixture.spec.combine == "mixture"
    weights = mixture.log_weights_for(words, only)[0].exp() if of_mixture else mixture.weights
    own: list[tuple[str, float]] = []
    if kind.any_length or mixture.candidates is not None:
        found = next(ask(mixture, [x]))
        for prompt in range(len(mixture.prompts)):
            best = max(found, key=lambda reply, at=prompt: reply.by_prompt[at])
            own.append((best.y, best.by_prompt[prompt]))
    else:
        every = torch.arange(len(mixture.prompts), device=mixture.lm.device)
        log_probs = mixture.pairs.pair_log_probs(mixture.tuned, words, torch.zeros_like(every), every)
        log_probability, answer = answer_log_probs(mixture, log_probs[None])[0].max(1)
        own = [
            (mixture.answer_space.word(number), probability)
            for number, probability in zip(answer.tolist(), log_probability.exp().tolist(), strict=True)
        ]
    behind = [
        PromptReply(number, prompt.template.text, weight, y, probability)
        for number, (prompt, weight, (y, probability)) in enumerate(
            zip(mixture.prompts, weights.tolist(), own, strict=True)
        )
    ]
    return sorted(behind, key=lambda one: -one.weight)
