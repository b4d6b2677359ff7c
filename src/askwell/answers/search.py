"""The most probable answers of any length, by best-first search.

The probability of a prefix bounds that of every answer that begins with it. So a search that always opens the most
probable prefixes, and stops when none is more probable than its threshold, finds exactly the answers above it. Of an
opened prefix only the best continuations are kept; the prefix itself waits with the probability of the best other one,
and is opened again, wider, when that is the most probable. The search knows nothing about LMs: `Open` says how prefixes
continue. Their probability is a sum over experts: the prompts of a mixture, or prompts with several x's."""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Prefix:
    """The first tokens of answers to one question."""

    question: int
    tokens: tuple[int, ...]
    log_joint: Float[Tensor, " experts"]
    """log p(expert) + log p(these tokens | expert): up to a constant the posterior over experts."""
    length: int | None = None
    """How many tokens the answers have; None if a token marks the end of an answer."""
    taken: frozenset[int] = frozenset()
    """The continuations that were kept when it was opened before."""
    probability: float = 1.0
    """Of all answers that may be found by opening it, together."""


@dataclass(frozen=True)
class Continuations:
    """How some prefixes continue."""

    tokens: Int[Tensor, "prefixes kept"]
    """The most probable next tokens of each prefix."""
    log_probs: Float[Tensor, "prefixes experts kept"]
    """Of these tokens, under each expert."""
    log_cut: Float[Tensor, " prefixes"]
    """The probability of the prefix with the best of all other next tokens."""
    log_end: Float[Tensor, "prefixes experts"] | None
    """That the answer ends here; None if the length is given."""

    @classmethod
    def best_of(
        cls,
        log_joint: Float[Tensor, "prefixes experts"],
        logits: Float[Tensor, "prefixes experts vocabulary"],
        log_totals: Float[Tensor, "prefixes experts"],
        log_end: Float[Tensor, "prefixes experts"] | None,
        branches: int,
    ) -> "Continuations":
        """Return the best continuations, chosen in the precision of the logits and then computed in float64."""
        if logits.shape[1] == 1:
            scores, shift = logits[:, 0], log_joint[:, :1] - log_totals.double()
        else:
            scores = (logits + (log_joint - log_totals).to(logits.dtype).unsqueeze(2)).logsumexp(1)
            shift = log_joint.new_zeros(len(logits), 1)
        best = scores.topk(min(branches + 1, scores.shape[1]))
        tokens = best.indices[:, :branches]
        of_tokens = logits.gather(2, tokens.unsqueeze(1).expand(-1, logits.shape[1], -1)).double()
        cut = best.values[:, branches:].double() + shift
        nothing = cut.new_full((len(cut), 1), -torch.inf)
        return cls(
            tokens, of_tokens - log_totals.double().unsqueeze(2), torch.cat([cut, nothing], 1).amax(1), log_end
        )  # fmt: skip

    @classmethod
    def joined(cls, parts: "Sequence[Continuations]") -> "Continuations":
        """Concatenate the continuations of several groups of prefixes."""
        ends = [part.log_end for part in parts if part.log_end is not None]
        return cls(
            torch.cat([part.tokens for part in parts]),
            torch.cat([part.log_probs for part in parts]),
            torch.cat([part.log_cut for part in parts]),
            torch.cat(ends) if ends else None,
        )


Open = Callable[[Sequence[Prefix], int], Continuations]
"""How prefixes continue; the number is the most continuations of one prefix that are kept."""


@dataclass(frozen=True)
class FoundAnswer:
    """A whole answer and its log-probability."""

    text: str
    log_probability: float
    parts: Float[Tensor, " experts"]
    """log p(expert) + log p(the answer | expert); of an answer of a mixture, log p(y | t, x) under each prompt."""
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class FoundAnswers:
    """The answers to one question that were found, the most probable first."""

    answers: tuple[FoundAnswer, ...]
    is_exact: bool
    """Whether no other answer can be as probable as the last of these, or as the one that was looked for."""
    unseen: float = -math.inf
    """Anything that was not found is at most as probable as this, or as the last that was found."""
    left: float = 0.0
    """Those that were not found have at most this probability together, leaving aside what is too improbable to
    matter."""

    def log_probability_of(self, text: str) -> float | None:
        """Return the log-probability of an answer, None if it was not found."""
        return next((answer.log_probability for answer in self.answers if answer.text == text), None)

    def most_unseen(self, log_probability: float) -> float:
        """Return the most answers that can be as probable as this and were not found."""
        if self.unseen < log_probability:
            return 0.0
        probability = math.exp(log_probability)
        return self.left * (1 + 1e-9) // probability if probability else math.inf


@dataclass(frozen=True)
class SearchLimits:
    """When a search ends."""

    answers: int = 10
    """This many answers are enough."""
    opened: int = 100
    """The most prefixes opened for one question, counted each time that one is opened; if the best answer is still
    missing, a few more, one by one."""
    tokens: int = 10
    """The most tokens of an answer."""
    at_once: int = 32
    """The most prefixes of one question that are opened together; a long search always opens many."""
    branches: int = 64
    """The most continuations of one prefix that are kept when it is first opened; four times as many each time that it
    is opened again."""
    spread: float = math.log(16)
    """Prefixes opened together with the most probable one are less probable by at most this factor: otherwise a certain
    answer of many tokens would wait for irrelevant ones."""


IsCounted = Callable[[int, str], bool]
"""Whether an answer to a question counts towards the limit."""


@dataclass
class _Search:
    """The search for one question."""

    number: int
    limits: SearchLimits
    least: float | None
    """All answers that are at least this probable are searched for; None to search for the most probable ones."""
    sure: float
    """Only answers that are at least this probable count towards the limit."""
    counts: IsCounted | None
    heap: list[tuple[float, int, Prefix]] = field(default_factory=list)
    found: list[FoundAnswer] = field(default_factory=list)
    best: list[float] = field(default_factory=list)
    """The most probable of the answers that count, as many as are enough: a heap."""
    most: float = -math.inf
    """The probability of the most probable answer that was found."""
    opened: int = 0
    pushed: int = 0

    @property
    def has_enough(self) -> bool:
        """Whether enough answers were found."""
        return len(self.best) >= self.limits.answers

    @property
    def bound(self) -> float:
        """Less probable answers are not searched for."""
        if self.least is not None:
            return self.least
        return self.best[0] if self.has_enough else -math.inf

    @property
    def is_over(self) -> bool:
        """Whether nothing more needs to be opened."""
        if not self.heap or (self.least is not None and self.has_enough):
            return True
        if self.opened >= self.limits.opened and not self._lacks_the_best:
            return True
        return -self.heap[0][0] < self.bound

    @property
    def _lacks_the_best(self) -> bool:
        """Whether the most probable answer may still be found by opening as many prefixes as it has tokens at most."""
        if self.least is not None or self.opened >= self.limits.opened + self.limits.tokens:
            return False
        return self.most < -self.heap[0][0]

    def push(self, prefix: Prefix, log_probability: float) -> None:
        heapq.heappush(self.heap, (-log_probability, self.pushed, prefix))
        self.pushed += 1

    def pop(self) -> list[Prefix]:
        """Remove and return the prefixes to open next."""
        prefixes: list[Prefix] = []
        least = -math.inf
        at_once = max(self.limits.at_once, min(self.opened // 4, SearchLimits.at_once))
        at_once = min(at_once, max(1, self.limits.opened - self.opened))
        while len(prefixes) < at_once and not self.is_over and -self.heap[0][0] >= least:
            if not prefixes:
                least = -self.heap[0][0] - self.limits.spread
            prefixes.append(heapq.heappop(self.heap)[2])
            self.opened += 1
        return prefixes

    def keep(self, text: str | None, tokens: tuple[int, ...], log_probability: float, log_joint: Tensor) -> None:
        """Record a whole answer."""
        if text is None or log_probability < self.bound:
            return
        self.found.append(FoundAnswer(text, log_probability, log_joint, tokens))
        self.most = max(self.most, log_probability)
        if log_probability >= self.sure and (self.counts is None or self.counts(self.number, text)):
            heapq.heappush(self.best, log_probability)
            if len(self.best) > self.limits.answers:
                heapq.heappop(self.best)

    def result(self) -> FoundAnswers:
        """Return what was found."""
        answers = sorted(self.found, key=lambda answer: (-answer.log_probability, answer.tokens))
        unseen = -self.heap[0][0] if self.heap else -math.inf
        left = math.fsum(prefix.probability for minus, _, prefix in self.heap if -minus >= self.bound)
        if self.least is not None:
            # If enough were found, nothing more was searched for, however many more there are.
            is_exact = self.has_enough or unseen < self.least
            return FoundAnswers(tuple(answers), is_exact, max(unseen, self.least), left)
        kept = tuple(answer for answer in answers if answer.log_probability >= self.bound)
        if self.counts is None:
            kept = kept[: self.limits.answers]  # of several that are as probable as the last
        return FoundAnswers(kept, unseen < self.bound or unseen == -math.inf, unseen, left)


def search_answers(
    roots: Sequence[Sequence[Prefix]],
    open_: Open,
    text_of: Callable[[tuple[int, ...]], str | None],
    limits: SearchLimits,
    *,
    least: Sequence[float] | None = None,
    sure: Sequence[float] | None = None,
    counts: IsCounted | None = None,
) -> list[FoundAnswers]:
    """Find the most probable answers to each question, from its first prefixes (no token yet, one for each length).

    `text_of` gives the surface string of tokens, None where they spell no answer (another spelling of some string, a
    special token). With `least`, the log-probability of an answer for each question, all answers that are at least as
    probable are found, up to the limit; answers that are less probable than `sure`, or for which `counts` is false, do
    not count towards it.
    """
    nothing = [-math.inf] * len(roots)
    searches = [
        _Search(number, limits, None if least is None else least[number], of_sure, counts)
        for number, of_sure in enumerate(sure or nothing)
    ]
    for search, prefixes in zip(searches, roots, strict=True):
        for prefix in prefixes:
            log_probability = float(prefix.log_joint.logsumexp(0))
            search.push(replace(prefix, probability=math.exp(log_probability)), log_probability)
    while chosen := [prefix for search in searches for prefix in search.pop()]:
        branches = max(limits.branches, *(4 * len(prefix.taken) for prefix in chosen))
        _extend(searches, chosen, open_(chosen, branches), text_of, limits)
    return [search.result() for search in searches]


def _extend(
    searches: Sequence[_Search],
    opened: Sequence[Prefix],
    continuations: Continuations,
    text_of: Callable[[tuple[int, ...]], str | None],
    limits: SearchLimits,
) -> None:
    """Record the results of opened prefixes: whole answers, and longer prefixes."""
    log_joint = torch.stack([prefix.log_joint for prefix in opened])
    joint = log_joint.unsqueeze(2) + continuations.log_probs
    of_kept = joint.logsumexp(1)
    left = (log_joint.logsumexp(1).exp() - of_kept.exp().sum(1)).tolist()
    of_tokens, tokens = of_kept.tolist(), continuations.tokens.tolist()
    if continuations.log_end is not None:
        ended = log_joint + continuations.log_end
        of_ended = ended.logsumexp(1).tolist()
        for row, prefix in enumerate(opened):
            search = searches[prefix.question]
            if prefix.tokens and not prefix.taken and of_ended[row] >= search.bound:
                search.keep(text_of(prefix.tokens), prefix.tokens, of_ended[row], ended[row])
    cuts = continuations.log_cut.tolist()
    for row, prefix in enumerate(opened):
        search, depth = searches[prefix.question], len(prefix.tokens) + 1
        if depth > (prefix.length or limits.tokens):
            continue
        for token, log_probability, of_experts in zip(tokens[row], of_tokens[row], joint[row].unbind(1), strict=True):
            if log_probability == -math.inf or log_probability < search.bound or token in prefix.taken:
                continue
            longer = (*prefix.tokens, token)
            if prefix.length == depth:
                search.keep(text_of(longer), longer, log_probability, of_experts)
            else:
                probability = math.exp(log_probability)
                branch = Prefix(prefix.question, longer, of_experts, prefix.length, probability=probability)
                search.push(branch, log_probability)
        if cuts[row] > -math.inf and cuts[row] >= search.bound:
            taken, probability = prefix.taken.union(tokens[row]), max(left[row], math.exp(cuts[row]))
            search.push(replace(prefix, taken=taken, probability=probability), cuts[row])
