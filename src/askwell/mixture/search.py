"""The most probable answers of any length, by best-first search.

The probability of a prefix bounds that of every answer that begins with it. So a search that always opens the most
probable prefix, and stops when none is more probable than what it looks for, finds exactly the answers that are. It
knows nothing of LMs: `Open` tells how prefixes go on.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Prefix:
    """The first tokens of answers to one question."""

    question: int
    tokens: tuple[int, ...]
    log_joint: Float[Tensor, " prompts"]
    """log p(t | x, r) + log p(these tokens | t, x) of each prompt: up to a constant the posterior over prompts."""
    length: int | None = None
    """How many tokens the answers have; None where a token tells that an answer is over."""

    @property
    def log_probability(self) -> float:
        """Under the mixture."""
        return float(self.log_joint.logsumexp(0))


@dataclass(frozen=True)
class Continuations:
    """How some prefixes go on."""

    log_probs: Float[Tensor, "prefixes prompts vocabulary"]
    """Of each next token, under each prompt; -inf for tokens that are never part of an answer."""
    log_end: Float[Tensor, "prefixes prompts"] | None
    """That the answer is over; None where the length is given."""


Open = Callable[[Sequence[Prefix]], Continuations]


@dataclass(frozen=True)
class FoundAnswer:
    """A whole answer."""

    text: str
    tokens: tuple[int, ...]
    log_joint: Float[Tensor, " prompts"]

    @property
    def log_probability(self) -> float:
        """Under the mixture."""
        return float(self.log_joint.logsumexp(0))


@dataclass(frozen=True)
class SearchLimits:
    """When a search ends."""

    answers: int = 10
    """So many answers are enough."""
    opened: int = 200
    """Prefixes that are opened for one question, at most."""
    tokens: int = 10
    """Tokens of an answer, at most."""
    at_once: int = 4
    """Prefixes of one question that are opened together."""
    branches: int = 64
    """Continuations of one prefix that are kept, at most."""


@dataclass
class _Search:
    """The search for one question."""

    least: float
    """Only answers that are at least as probable are looked for."""
    heap: list[tuple[float, int, Prefix]] = field(default_factory=list)
    found: list[FoundAnswer] = field(default_factory=list)
    opened: int = 0
    cut: float = -math.inf
    """The probability of the most probable continuation that was not kept."""
    pushed: int = 0

    def push(self, prefix: Prefix) -> None:
        log_probability = prefix.log_probability
        if log_probability >= self.least:
            heapq.heappush(self.heap, (-log_probability, self.pushed, prefix))
            self.pushed += 1


@dataclass(frozen=True)
class SearchResult:
    """The answers to one question, the most probable first."""

    answers: tuple[FoundAnswer, ...]
    is_exact: bool
    """Whether no answer that is not among these can be as probable as the last of them, or as what was looked for."""
    unseen: float = -math.inf
    """The log-probability of anything that was not found is at most this."""


def search_answers(
    roots: Sequence[Sequence[Prefix]],
    open_: Open,
    text_of: Callable[[tuple[int, ...]], str | None],
    limits: SearchLimits,
    *,
    least: Sequence[float] | None = None,
    counts: Callable[[int, str], bool] | None = None,
) -> list[SearchResult]:
    """For each question its most probable answers, from its first prefixes (no token yet, of every length).

    `text_of` gives the surface string of tokens, None where they spell no answer (another spelling of some string, a
    special token). With `least`, the log-probability of an answer for each question, all answers that are at least as
    probable are found, up to the limit; answers for which `counts` is false do not count towards it.
    """
    searches = [_Search(-math.inf if least is None else least[number]) for number in range(len(roots))]
    for search, prefixes in zip(searches, roots, strict=True):
        for prefix in prefixes:
            search.push(prefix)

    def is_over(number: int) -> bool:
        search = searches[number]
        if not search.heap or search.opened >= limits.opened:
            return True
        enough = [a for a in search.found if counts is None or counts(number, a.text)]
        if len(enough) < limits.answers:
            return False
        if least is not None:
            return True
        kth = sorted((a.log_probability for a in enough), reverse=True)[limits.answers - 1]
        return -search.heap[0][0] < kth

    active = list(range(len(roots)))
    while active := [number for number in active if not is_over(number)]:
        chosen: list[Prefix] = []
        for number in active:
            search = searches[number]
            some = min(limits.at_once, limits.opened - search.opened, len(search.heap))
            chosen += [heapq.heappop(search.heap)[2] for _ in range(some)]
            search.opened += some
        continuations = open_(chosen)
        for row, prefix in enumerate(chosen):
            _go_on(searches[prefix.question], prefix, continuations, row, text_of, limits)
    return [_result(search, limits, number, least, counts) for number, search in enumerate(searches)]


def _go_on(
    search: _Search,
    prefix: Prefix,
    continuations: Continuations,
    row: int,
    text_of: Callable[[tuple[int, ...]], str | None],
    limits: SearchLimits,
) -> None:
    """Keeps what an opened prefix leads to: whole answers, and longer prefixes."""
    if continuations.log_end is not None and prefix.tokens:
        _keep(search, prefix.tokens, prefix.log_joint + continuations.log_end[row], text_of)
    depth = len(prefix.tokens) + 1
    if depth > (prefix.length or limits.tokens):
        return
    joint = prefix.log_joint[:, None] + continuations.log_probs[row]
    of_mixture = joint.logsumexp(0)
    kept = min(limits.branches, len(of_mixture))
    best = of_mixture.topk(min(kept + 1, len(of_mixture)))
    if len(best.values) > kept:
        search.cut = max(search.cut, float(best.values[kept]))
    for token, log_probability in zip(best.indices[:kept].tolist(), best.values[:kept].tolist(), strict=True):
        if log_probability == -math.inf or log_probability < search.least:
            break
        tokens = (*prefix.tokens, token)
        if prefix.length == depth:
            _keep(search, tokens, joint[:, token], text_of)
        else:
            search.push(Prefix(prefix.question, tokens, joint[:, token].clone(), prefix.length))


def _keep(
    search: _Search, tokens: tuple[int, ...], log_joint: Tensor, text_of: Callable[[tuple[int, ...]], str | None]
) -> None:
    answer = FoundAnswer("", tokens, log_joint.clone())
    if answer.log_probability >= search.least and (text := text_of(tokens)) is not None:
        search.found.append(FoundAnswer(text, tokens, answer.log_joint))


def _result(
    search: _Search,
    limits: SearchLimits,
    number: int,
    least: Sequence[float] | None,
    counts: Callable[[int, str], bool] | None,
) -> SearchResult:
    answers = sorted(search.found, key=lambda answer: (-answer.log_probability, answer.tokens))
    enough = [a for a in answers if counts is None or counts(number, a.text)][: limits.answers]
    unseen = max(-search.heap[0][0] if search.heap else -math.inf, search.cut)
    if least is not None:
        # Ten better ones are as many as were looked for, however many more there are.
        is_exact = len(enough) >= limits.answers or unseen < search.least
        return SearchResult(tuple(answers), is_exact, max(unseen, search.least))
    if len(enough) < limits.answers:
        return SearchResult(tuple(answers), unseen == -math.inf, unseen)
    last = enough[-1]
    kept = answers[: answers.index(last) + 1]
    unseen = max([unseen, *(answer.log_probability for answer in answers[len(kept) :])])
    return SearchResult(tuple(kept), unseen <= last.log_probability, unseen)
