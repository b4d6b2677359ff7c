"""Answers whose probabilities are all computed: ranks, priors and corrections follow from one table."""

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.answers.candidates import Candidates
from askwell.answers.encode import EncodedFacts
from askwell.answers.likelihood import Likelihood, ReadOnce
from askwell.answers.reply import LeftOutFact, PromptReply, Replies, Reply, form_of
from askwell.answers.strategy import Answers, BatchNotes, Golds, Prior, PromptAnswers, Ranking, sum_dtype
from askwell.data.facts import Fact, Relation
from askwell.errors import NotFinite, NothingLeft
from askwell.lms.batches import Words
from askwell.prompts.prompt_set import PromptSet
from askwell.prompts.weights import certainty_of
from askwell.specs.mixture_spec import AnswerKind

NOT_A_CANDIDATE = "y is not among the candidates"
MOST_XS_OF_PRIOR = 500
"""A prior is the mean over at most this many x's of train; of answers that are searched for, over fewer."""
# The most numbers (facts × answers) held at once.
NUMBERS_AT_ONCE = 2**23


Best = tuple[tuple[str, ...], tuple[float, ...]]
"""The most probable answers to a fact, and their probabilities."""


class Ranked(NamedTuple):
    """The ranks of the right answers of some facts."""

    filtered: Float[Tensor, " facts"]
    """Ranks with the other right answers left out."""
    raw: Float[Tensor, " facts"]
    """Ranks among all answers."""
    log_probabilities: Float[Tensor, " facts"]


def rank_golds(
    log_probs: Float[Tensor, "facts answers"],
    golds: Int[Tensor, " facts"],
    others: Int[Tensor, "facts most_others"],
) -> Ranked:
    """Rank golds: 1 + the number of answers more probable + half the number of others exactly as probable.

    `others` are the other right answers of each fact, padded with -1.
    """
    if log_probs.isnan().any() or (log_probs == torch.inf).any():
        raise NotFinite("a probability is not finite, so answers cannot be ranked")
    gold = log_probs.gather(1, golds[:, None])
    raw = 1 + (log_probs > gold).sum(1) + 0.5 * ((log_probs == gold).sum(1) - 1)
    of_others = log_probs.gather(1, others.clamp(min=0))
    real = others >= 0
    others_before = ((of_others > gold) & real).sum(1) + 0.5 * ((of_others == gold) & real).sum(1)
    return Ranked(raw - others_before, raw, gold[:, 0])


def best_first(log_probs: Float[Tensor, "xs answers"], top: int) -> Int[Tensor, "xs top"]:
    """Return the most probable answers of each row, best first, equally probable ones always in the same order."""
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


def combine(
    prompts: PromptSet, by_prompt: Float[Tensor, "facts prompts answers"], log_weights: Float[Tensor, "facts prompts"]
) -> Float[Tensor, "facts answers"]:
    """Combine the prompts' log-probabilities into the mixture's, or the product's, whose exponents are the weights."""
    if not prompts.is_product:
        return (by_prompt + log_weights[..., None]).logsumexp(1)
    everywhere = by_prompt.isfinite().all(1)
    scores = torch.einsum("ft,fta->fa", log_weights.exp(), by_prompt.nan_to_num(neginf=0.0))
    return scores.masked_fill(~everywhere, -torch.inf)


class ListedAnswers(Answers):
    """Answers by their numbers in a list."""

    is_listed = True
    most_xs_of_prior = MOST_XS_OF_PRIOR
    count: int
    is_closed: bool
    """Whether nothing else can be answered, so that probabilities sum to one over the list."""

    def __init__(self, prompts: PromptSet, kind: AnswerKind, candidates: Candidates | None = None) -> None:
        super().__init__(prompts, kind, candidates)
        self._numbers: dict[str, int | None] = {}

    def numbers_of(self, ys: Sequence[str]) -> list[int | None]:
        """Return the number of each y, None for one that is not in the list; each is tokenised once."""
        unknown = [y for y in dict.fromkeys(ys) if y not in self._numbers]
        if unknown:
            self._numbers |= zip(unknown, self._find(unknown), strict=True)
        return [self._numbers[y] for y in ys]

    @abstractmethod
    def _find(self, ys: Sequence[str]) -> list[int | None]:
        """Return the number of each y, None for one that is not in the list."""

    @abstractmethod
    def word(self, number: int) -> str:
        """Return an answer as a person reads it."""

    @abstractmethod
    def log_probs(
        self,
        xs: Words,
        rows: Int[Tensor, " facts"],
        notes: BatchNotes | None = None,
        log_weights: Float[Tensor, " prompts"] | None = None,
    ) -> Float[Tensor, "facts answers"]:
        """Return log p(y | x, r) of all answers, not normalised over the list; weights that do not depend on x can
        replace the mixture's."""

    @abstractmethod
    def _notes(self, fact_count: int) -> BatchNotes:
        """Return empty notes of what each prompt alone answers to this many facts."""

    @property
    @abstractmethod
    def asked_at_once(self) -> int:
        """How many facts can be asked at once while the probabilities of all answers are held."""

    @property
    def labels(self) -> tuple[str, ...] | None:
        """All answers that can be given, if they are chosen among candidates."""
        return tuple(map(self.word, range(self.count))) if self.is_closed else None

    def label_of(self, y: str) -> str | None:
        """Return the label that y is, or is a word of; None if there is none."""
        (number,) = self.numbers_of([y])
        return None if number is None else self.word(number)

    def choose(self, encoded: EncodedFacts) -> tuple[EncodedFacts, tuple[LeftOutFact, ...]]:
        """Return the facts whose y is one of the answers, and the others."""
        numbers = self.numbers_of([fact.y for fact in encoded.facts])
        if None not in numbers:
            return encoded, ()
        facts = zip(encoded.facts, numbers, strict=True)
        others = tuple(LeftOutFact(fact, NOT_A_CANDIDATE) for fact, number in facts if number is None)
        kept = torch.tensor([number is not None for number in numbers], device=self.prompts.lm.device)
        return encoded.subset(kept), others

    # ── training, if answers are chosen among candidates ──────────────────────────────────────────────────────────

    def facts_at_once(self, encoded: EncodedFacts) -> int:
        """Return how many facts can be trained on in one forward and backward pass within bounded memory."""
        return max(1, super().facts_at_once(encoded) // (self.count if self.is_closed else 1))

    def likelihood(
        self, encoded: EncodedFacts, rows: Int[Tensor, " facts"], known: ReadOnce | None = None
    ) -> Likelihood:
        """Return log p(y | x, r) of the facts in these rows, normalised over candidates if there are any."""
        if not self.is_closed:
            return super().likelihood(encoded, rows, known)
        by_prompt = self.by_prompt(encoded.xs, rows)
        log_weights = self._log_weights(encoded.xs, rows, by_prompt)
        numbers = self._gold_numbers([encoded.facts[row] for row in rows.tolist()])
        golds = torch.tensor(numbers, device=log_weights.device)[:, None]
        total = combine(self.prompts, by_prompt, log_weights).log_softmax(1).gather(1, golds)[:, 0]
        of_gold = by_prompt.gather(2, golds[:, None].expand(-1, by_prompt.shape[1], -1))[..., 0]
        return Likelihood(total, log_weights + of_gold)

    def _log_weights(
        self, xs: Words, rows: Int[Tensor, " facts"], by_prompt: Float[Tensor, "facts prompts answers"]
    ) -> Float[Tensor, "facts prompts"]:
        """Return the log-weight of each prompt for each fact, given its log-probabilities of all answers."""
        if "answers" not in self.prompts.weighting.reads:
            return self.prompts.log_weights_for(xs, rows)
        evidence = self.prompts.evidence(xs, rows, certainty_of(by_prompt.log_softmax(2)))
        return self.prompts.log_weights_for(xs, rows, evidence)

    @abstractmethod
    def by_prompt(self, xs: Words, rows: Int[Tensor, " facts"]) -> Float[Tensor, "facts prompts answers"]:
        """Return log p(y | t, x) of all answers under every prompt, not normalised over the list."""

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    def of_each(self, xs: Sequence[str], ys: Sequence[str]) -> Float[Tensor, "xs ys"]:
        """Return log p(y | x, r) of every y for every x, not normalised over the ys; -inf for one not in the list."""
        self.check_askable(xs)
        found = torch.cat([self.log_probs(*batch) for batch in self._in_batches(xs, self.asked_at_once)])
        found = torch.nn.functional.pad(found, (0, 1), value=-torch.inf)
        return found[:, [self.count if number is None else number for number in self.numbers_of(ys)]]

    def ask_each_prompt(self, xs: Sequence[str]) -> Iterator[list[PromptReply]]:
        """Yield the best answers of every prompt by itself to each x; among candidates, probabilities sum to one."""
        self.check_askable(xs)
        (words, rows), kept = self._words(xs), self.prompts.tuned.kept.tolist()
        for row in rows.split(1):
            best = self._best_of_prompts(words, row)
            yield self._prompt_replies(self.prompts.weights.detach(), [(prompt, *best[prompt]) for prompt in kept])

    def prompts_behind(self, x: str) -> list[PromptReply]:
        """Return each prompt with its weight for x and its own best answer, heaviest first."""
        self.check_askable([x])
        return self._behind(x, self._best_of_prompts(*self._words([x])))

    @torch.no_grad()
    def _best_of_prompts(self, xs: Words, row: Int[Tensor, " 1"]) -> list[tuple[str, float]]:
        """Return the best answer of every prompt to an x, and its probability."""
        given = self._given()
        best = self._normalised(self.by_prompt(xs, row)[0][:, given]).max(1)
        return list(zip(map(self.word, given[best.indices].tolist()), best.values.exp().tolist(), strict=True))

    def _replies(
        self,
        answers: Int[Tensor, "xs top"],
        log_probs: Float[Tensor, "xs top"],
        by_prompt: Float[Tensor, "xs prompts answers"],
        word: Callable[[int], str],
    ) -> Iterator[Replies]:
        """Yield the replies of these answers to each x, given the log-probabilities of all answers by prompt, and how
        an answer is spelled."""
        of_prompts = by_prompt.gather(2, answers[:, None, :].expand(-1, by_prompt.shape[1], -1)).exp().transpose(1, 2)
        for row in zip(answers.tolist(), log_probs.exp().tolist(), of_prompts.tolist(), strict=True):
            yield Replies(Reply(word(number), p, tuple(each)) for number, p, each in zip(*row, strict=True))

    def _given(self) -> Int[Tensor, " answers"]:
        """Return the numbers of the answers that can be given."""
        return torch.arange(self.count, device=self.prompts.lm.device)

    # ── evaluation ────────────────────────────────────────────────────────────────────────────────────────────────

    def batches(self, encoded: EncodedFacts) -> Iterable[Int[Tensor, " facts"]]:
        """Return the rows of all facts, in batches as large as memory allows."""
        return encoded.rows.split(self.asked_at_once)

    @torch.no_grad()
    def rank(
        self,
        encoded: EncodedFacts,
        rows: Int[Tensor, " facts"],
        golds: Golds,
        top: int = 10,
        *,
        record: list[PromptAnswers] | None = None,
        prior: Prior | None = None,
    ) -> tuple[list[Ranking], list[Ranking]]:
        """Return the rankings of the facts in these rows, and those corrected by a prior if there is one."""
        notes = None if record is None else self._notes(len(rows))
        log_probs = self.log_probs(encoded.xs, rows, notes)
        if record is not None and notes is not None:
            record.append(notes.answers(log_probs))
        facts = [encoded.facts[row] for row in rows.tolist()]
        corrected = prior.correct(log_probs, facts, golds, top) if isinstance(prior, ListedPrior) else []
        shown = self._normalised(log_probs)
        return self.rankings(log_probs, facts, golds, self.best(shown, top), shown), corrected

    def _normalised(self, log_probs: Float[Tensor, "*rest answers"]) -> Float[Tensor, "*rest answers"]:
        """Return log-probabilities that sum to one over the list, if nothing else can be answered."""
        return log_probs.log_softmax(-1) if self.is_closed else log_probs

    @torch.no_grad()
    def quick_ranks(self, encoded: EncodedFacts, golds: Golds) -> tuple[list[Ranking], float | None]:
        """Return the rankings of all facts without their best answers, and their log-loss, None if it is infinite."""
        rankings: list[Ranking] = []
        for rows in self.batches(encoded):
            log_probs = self._normalised(self.log_probs(encoded.xs, rows))
            rankings += self.rankings(log_probs, [encoded.facts[row] for row in rows.tolist()], golds)
        log_probabilities = [ranking.log_probability for ranking in rankings]
        log_loss = -float(torch.tensor(log_probabilities, dtype=self.prompts.weight_logits.dtype).mean())
        return rankings, log_loss if math.isfinite(log_loss) else None

    def rankings(
        self,
        scores: Float[Tensor, "facts answers"],
        facts: Sequence[Fact],
        golds: Golds,
        best: Sequence[Best] = (),
        log_probs: Float[Tensor, "facts answers"] | None = None,
    ) -> list[Ranking]:
        """Rank the ys of facts by the scores of all answers, which are their log-probabilities unless these are given;
        with the best answers to each fact, if there are any."""
        numbers, others = self._gold_numbers(facts), []
        self.numbers_of([y for fact in facts for y in golds.get(fact.x, ())])  # all at once
        for fact, number in zip(facts, numbers, strict=True):
            right = golds.get(fact.x, ())
            of_x = {*self.numbers_of(right), *self._alike((*right, fact.y))} - {None, number}
            others.append(sorted(other for other in of_x if other is not None))
        most = max(map(len, others), default=0)
        padded = torch.tensor([row + [-1] * (most - len(row)) for row in others], dtype=torch.long)
        of_golds = torch.tensor(numbers, device=scores.device)
        ranked = rank_golds(scores, of_golds, padded.view(len(facts), most).to(scores.device))
        if log_probs is not None:
            ranked = ranked._replace(log_probabilities=log_probs.gather(1, of_golds[:, None])[:, 0])
        columns = [column.tolist() for column in ranked]
        none: Best = (), ()
        return [Ranking(*ranks, *own) for *ranks, own in zip(*columns, best or [none] * len(facts), strict=True)]

    def _alike(self, ys: Iterable[str]) -> set[int]:
        """Return the numbers of all answers that loosely are one of the ys; none if only exact strings count."""
        if self.prompts.spec.match == "exact":
            return set()
        return {number for y in ys for number in self._by_form.get(form_of(y, "loose"), ())}

    @cached_property
    def _by_form(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number in range(self.count):
            found.setdefault(form_of(self.word(number), "loose"), []).append(number)
        return found

    def _gold_numbers(self, facts: Sequence[Fact]) -> list[int]:
        numbers = [number for number in self.numbers_of([fact.y for fact in facts]) if number is not None]
        if len(numbers) < len(facts):
            raise ValueError("only facts whose y is one of the answers can be ranked")
        return numbers

    def best(self, log_probs: Float[Tensor, "facts answers"], top: int) -> list[Best]:
        """Return the most probable answers of each row, and their probabilities."""
        best = best_first(log_probs, min(max(top, 1), log_probs.shape[1]))[:, :top]
        probabilities = log_probs.gather(1, best).exp().tolist()
        return [(tuple(map(self.word, row)), tuple(p)) for row, p in zip(best.tolist(), probabilities, strict=True)]

    # ── priors ────────────────────────────────────────────────────────────────────────────────────────────────────

    def majority(self, relation: Relation) -> "ListedPrior":
        """Return the relative frequencies of the ys of train, among its facts whose y is one of the answers."""
        counts = Counter(fact.y for fact in relation.train)
        shares = torch.zeros(self.count, dtype=torch.float64)
        for number, count in zip(self.numbers_of(list(counts)), counts.values(), strict=True):
            if number is not None:
                shares[number] += count
        total = int(shares.sum())
        if not total:
            reason = f"y is none of {self.vocabulary}"
            raise NothingLeft(f"train facts of {relation.name}", {reason: len(relation.train)})
        lm = self.prompts.lm
        log_shares = (shares / total).log().to(device=lm.device, dtype=sum_dtype(lm))
        return ListedPrior(f"how often each y occurs in {total} train facts", self, log_shares)

    @torch.no_grad()
    def _prior(
        self,
        description: str,
        xs: Words,
        rows: Int[Tensor, " xs"],
        log_weights: Float[Tensor, " prompts"] | None = None,
    ) -> "ListedPrior":
        """Return the mean over these x's. It takes as much memory as a few of them."""
        lm = self.prompts.lm
        total = torch.full((self.count,), -torch.inf, dtype=sum_dtype(lm), device=lm.device)
        for batch in rows.split(self.asked_at_once):
            # Summed as logarithms: tiny probabilities would underflow to a prior of 0.
            of_batch = self.log_probs(xs, batch, log_weights=log_weights).to(total.dtype)
            total = torch.logaddexp(total, of_batch.logsumexp(0))
        return ListedPrior(description, self, total - torch.log(torch.tensor(len(rows), dtype=total.dtype)))


@dataclass(frozen=True)
class ListedPrior(Prior):
    """One distribution over listed answers, given to every x."""

    answers: ListedAnswers
    log_probs: Float[Tensor, " answers"]

    def rank(self, facts: Sequence[Fact], golds: Golds, top: int = 10) -> list[Ranking]:
        """Return the rankings of facts if these answers are given to all of them."""
        log_probs, found = self.log_probs[None], []
        best = self.answers.best(log_probs, top)
        at_once = self.answers.asked_at_once
        for start in range(0, len(facts), at_once):
            some = facts[start : start + at_once]
            found += self.answers.rankings(log_probs.expand(len(some), -1), some, golds, best * len(some))
        return found

    def correct(
        self, log_probs: Float[Tensor, "facts answers"], facts: Sequence[Fact], golds: Golds, top: int = 10
    ) -> list[Ranking]:
        """Return the rankings of facts if answers are ranked by log p(y | x, r) - log prior(y).

        Probabilities are those of these scores, normalised over all answers that are ranked. An answer to which the
        prior gives no probability at all gets none.
        """
        log_prior = self.log_probs
        scores = (log_probs.to(log_prior.dtype) - log_prior).masked_fill(log_prior == -torch.inf, -torch.inf)
        corrected = scores.log_softmax(1)
        return self.answers.rankings(corrected, facts, golds, self.answers.best(corrected, top))
