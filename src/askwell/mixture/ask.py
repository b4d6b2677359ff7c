"""Answers questions: what does the mixture say about an x?"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.calls import checked
from askwell.errors import BadOption, UserMistake
from askwell.lms.batches import Words, words_of
from askwell.mixture import distributions
from askwell.mixture.answer_search import AnswerSearch
from askwell.mixture.answers import AnswerKind
from askwell.mixture.candidates import Candidates, CandidateScorer, GivenCandidates, as_candidates
from askwell.mixture.encode import default_kind, why_unaskable
from askwell.mixture.reply import Replies, Reply
from askwell.mixture.search import SearchLimits

if TYPE_CHECKING:
    from askwell.mixture.mixture import Mixture

# Each x takes prompts × answers numbers while it is answered, so that every answer comes with each prompt's
# probability. Few at a time, so that the first answers come soon and memory does not grow with the number of x's.
_NUMBERS_AT_ONCE = 2**22
_QUESTIONS_AT_ONCE = 32
# Prefixes of answers that are opened for each x under one prompt, and at least under many prompts: an LM of 100 M
# parameters takes some seconds for them.
_OPENED, _LEAST_OPENED = 500, 100


@checked
def ask(
    mixture: "Mixture",
    xs: str | Sequence[str],
    top: int = 10,
    *,
    candidates: GivenCandidates = None,
) -> Iterator[Replies]:
    """For each x its most probable answers, best first.

    `candidates` are the answers to choose among: a list of words, a dictionary from labels to words, a file, or
    `Candidates`. Answers of any length are found by search; where it would take too long to find all of them, replies
    say so, and hold those that are certainly the best."""
    return _ask(mixture, list_of_xs(xs), top, as_candidates(candidates))


def list_of_xs(given: str | Sequence[str]) -> list[str]:
    """One x or several, as a list."""
    xs = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    for x in xs:
        if not isinstance(x, str):
            raise BadOption(f"ask: x must be a string, or a list of strings, not {type(x).__name__}")
    return xs


def _ask(mixture: "Mixture", xs: Sequence[str], top: int, candidates: Candidates | None) -> Iterator[Replies]:
    for x, replies in zip(xs, _replies(mixture, xs, top, candidates), strict=True):
        found = replies if isinstance(replies, Replies) else Replies(replies)
        found.x = x
        yield found


def _replies(mixture: "Mixture", xs: Sequence[str], top: int, candidates: Candidates | None) -> Iterator[list[Reply]]:
    if top < 1:
        raise BadOption(f"top={top}: it must be at least 1")
    kind = kind_to_ask(mixture, xs)
    candidates = candidates or mixture.candidates
    if candidates is not None and (kind.any_length or candidates.labels is not None):
        yield from _choose(CandidateScorer(mixture, candidates, kind), xs, top)
        return
    if kind.any_length:
        yield from _search(mixture, xs, top, kind)
        return
    allowed = candidates.answers(mixture)[0] if candidates else None
    together = max(1, _NUMBERS_AT_ONCE // (mixture.answer_space.count * len(mixture.prompts)))
    for start in range(0, len(xs), together):
        yield from _ask_some(mixture, xs[start : start + together], top, allowed)


def kind_to_ask(mixture: "Mixture", xs: Sequence[str]) -> AnswerKind:
    """What counts as an answer; an x that cannot be asked is an error."""
    kind = default_kind(mixture)
    for x, reason in zip(xs, why_unaskable(mixture, xs, kind), strict=True):
        if reason is not None:
            raise UserMistake(f"{x[:60]!r} cannot be asked: {reason}")
    return kind


def search_limits(top: int, kind: AnswerKind, prompts: int) -> SearchLimits:
    """When a search for this many answers under so many prompts ends."""
    return SearchLimits(answers=top, tokens=kind.longest, opened=max(_LEAST_OPENED, _OPENED // prompts))


def _search(mixture: "Mixture", xs: Sequence[str], top: int, kind: AnswerKind) -> Iterator[Replies]:
    search = AnswerSearch(mixture, search_limits(top, kind, len(mixture.tuned.kept)), kind)
    for words, some in _in_turn(mixture, xs):
        for found in search.best(words, some):
            certain = [a for a in found.answers if found.is_exact or a.log_probability >= found.unseen]
            replies = Replies(
                Reply(answer.text, math.exp(answer.log_probability), tuple(map(math.exp, answer.by_prompt)))
                for answer in certain or found.answers[:1]
            )
            if not found.is_exact:
                replies.unseen = math.exp(found.unseen)
            yield replies


def _in_turn(mixture: "Mixture", xs: Sequence[str]) -> Iterator[tuple[Words, Int[Tensor, " xs"]]]:
    """The x's a few at a time, padded to the longest of these."""
    for start in range(0, len(xs), _QUESTIONS_AT_ONCE):
        words = words_of(xs[start : start + _QUESTIONS_AT_ONCE], mixture.lm.wording, mixture.lm.device)
        yield words, torch.arange(words.lengths.shape[1], device=mixture.lm.device)


@torch.no_grad()
def _choose(scorer: CandidateScorer, xs: Sequence[str], top: int) -> Iterator[list[Reply]]:
    mixture = scorer.mixture
    for words, some in _in_turn(mixture, xs):
        by_prompt = scorer.by_prompt(words, some)
        log_probs = scorer.combine(by_prompt, mixture.log_weights_for(words, some)).log_softmax(1)
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
    prompts = torch.arange(len(mixture.prompts), device=mixture.lm.device)
    facts, asked = everyone.repeat_interleave(len(prompts)), prompts.repeat(len(xs))
    of_pairs = mixture.pairs.pair_log_probs(mixture.tuned, words, facts, asked)
    by_prompt = distributions.answer_log_probs(mixture, of_pairs.view(len(xs), len(prompts), -1))
    yield from replies(mixture, words, everyone, by_prompt, top, allowed)


@torch.no_grad()
def replies(
    mixture: "Mixture",
    words: Words,
    asked: Int[Tensor, " xs"],
    by_prompt: Float[Tensor, "xs prompts answers"],
    top: int,
    allowed: Int[Tensor, " allowed"] | None,
) -> Iterator[list[Reply]]:
    """The most probable one-token answers to each x, from every prompt's; `allowed` are all that can be given.

    An x is named by its place among `words`.
    """
    log_probs = distributions.combine(mixture, words, asked, by_prompt.unbind(1))
    if allowed is None:
        allowed = mixture.answer_space.askable
        log_probs = log_probs[:, allowed]
    else:  # nothing else can be answered, so probabilities sum to one
        log_probs = log_probs[:, allowed].log_softmax(1)
        by_prompt = by_prompt - by_prompt[..., allowed].logsumexp(2, keepdim=True)
    places = _best_first(log_probs, min(top, log_probs.shape[1]))
    answers = allowed[places]
    of_prompts = by_prompt.gather(2, answers[:, None, :].expand(-1, by_prompt.shape[1], -1)).exp().transpose(1, 2)
    rows = zip(answers.tolist(), log_probs.gather(1, places).exp().tolist(), of_prompts.tolist(), strict=True)
    word = mixture.answer_space.word
    for row in rows:
        yield [Reply(word(answer), probability, tuple(each)) for answer, probability, each in zip(*row, strict=True)]


def _best_first(log_probs: Float[Tensor, "xs answers"], top: int) -> Int[Tensor, "xs top"]:
    """The most probable answers of each row, best first, equally probable ones always in the same order."""
    # A stable sort of only the possible ones: sorting a whole vocabulary takes longer than the LM.
    found = log_probs.topk(top)
    places = found.indices.sort(dim=1).values
    order = log_probs.gather(1, places).sort(dim=1, descending=True, stable=True).indices
    places = places.gather(1, order)
    # Where more are as probable as the last one, topk takes any of them.
    for row in ((log_probs >= found.values[:, -1:]).sum(1) > top).nonzero()[:, 0].tolist():
        likely = (log_probs[row] >= found.values[row, -1]).nonzero()[:, 0]
        places[row] = likely[log_probs[row][likely].sort(descending=True, stable=True).indices[:top]]
    return places
