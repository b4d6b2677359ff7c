"""Answers whose probabilities are all computed: ranks, priors and corrections follow from one table."""

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.answers.candidates import Candidates
from askwell.answers.encode import EncodedFacts, LeftOutFact
from askwell.answers.kind import AnswerKind
from askwell.answers.likelihood import Likelihood, ReadOnce
from askwell.answers.prompt_answers import BatchNotes, PromptAnswers, sum_dtype
from askwell.answers.reply import PromptReply
from askwell.answers.strategy import Answers, Golds, Prior, Ranking, drawn, mean_description
from askwell.data.facts import Fact, Relation
from askwell.errors import NotFinite, NothingLeft
from askwell.lms.batches import Words
from askwell.prompts.prompt_set import PromptSet

NOT_A_CANDIDATE = "y is not among the candidates"
MOST_XS_OF_PRIOR = 500
"""A prior is the mean over at most this many x's of train."""
# The most numbers (facts × answers) held at once.
NUMBERS_AT_ONCE = 2**23


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


def best_answers(log_probs: Float[Tensor, " answers"], least: Float[Tensor, " 1"], top: int) -> Int[Tensor, " best"]:
    """Return the best answers, where `least` is the log-probability of the last; equal ones keep their order."""
    reached = (log_probs >= least).nonzero()[:, 0]
    return reached[log_probs[reached].sort(descending=True, stable=True).indices[:top]]


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
        log_weights = self.prompts.log_weights_for(encoded.xs, rows)
        by_prompt = self.by_prompt(encoded.xs, rows)
        numbers = self._gold_numbers([encoded.facts[row] for row in rows.tolist()])
        golds = torch.tensor(numbers, device=log_weights.device)[:, None]
        total = combine(self.prompts, by_prompt, log_weights).log_softmax(1).gather(1, golds)[:, 0]
        of_gold = by_prompt.gather(2, golds[:, None].expand(-1, by_prompt.shape[1], -1))[..., 0]
        return Likelihood(total, log_weights + of_gold)

    @abstractmethod
    def by_prompt(self, xs: Words, rows: Int[Tensor, " facts"]) -> Float[Tensor, "facts prompts answers"]:
        """Return log p(y | t, x) of all answers under every prompt, not normalised over the list."""

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def ask_each_prompt(self, xs: Sequence[str]) -> Iterator[list[PromptReply]]:
        """Yield the best answers of every prompt by itself to each x; among candidates, probabilities sum to one."""
        self.check_askable(xs)
        (words, rows), given, kept = self._words(xs), self._given(), self.prompts.tuned.kept.tolist()
        for row in rows.split(1):
            log_probs = self.by_prompt(words, row)[0][:, given]
            best = (log_probs.log_softmax(1) if self.is_closed else log_probs).max(1)
            numbers, probabilities = given[best.indices].tolist(), best.values.exp().tolist()
            yield [self._reply_of(prompt, self.word(numbers[prompt]), probabilities[prompt]) for prompt in kept]

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
        ranked = self.ranked(log_probs, facts, golds)
        if self.is_closed:  # nothing else can be answered, so probabilities sum to one
            log_probs = log_probs.log_softmax(1)
            numbers = torch.tensor(self._gold_numbers(facts), device=log_probs.device)
            ranked = ranked._replace(log_probabilities=log_probs.gather(1, numbers[:, None])[:, 0])
        return self.rankings(ranked, self.best(log_probs, top)), corrected

    @torch.no_grad()
    def quick_ranks(self, encoded: EncodedFacts, golds: Golds) -> tuple[list[Ranking], float | None]:
        """Return the rankings of all facts without their best answers, and their log-loss, None if it is infinite."""
        rankings: list[Ranking] = []
        log_probabilities = []
        for rows in self.batches(encoded):
            log_probs = self.log_probs(encoded.xs, rows)
            facts = [encoded.facts[row] for row in rows.tolist()]
            ranked = self.ranked(log_probs.log_softmax(1) if self.is_closed else log_probs, facts, golds)
            rankings += self.rankings(ranked)
            log_probabilities.append(ranked.log_probabilities)
        log_loss = -float(torch.cat(log_probabilities).mean())
        return rankings, log_loss if math.isfinite(log_loss) else None

    def ranked(self, log_probs: Float[Tensor, "facts answers"], facts: Sequence[Fact], golds: Golds) -> Ranked:
        """Rank the ys of facts, given the log-probabilities of all answers."""
        numbers, others = self._gold_numbers(facts), []
        self.numbers_of([y for fact in facts for y in golds.get(fact.x, ())])  # all at once
        for fact, number in zip(facts, numbers, strict=True):
            of_x = {*self.numbers_of(golds.get(fact.x, ()))} - {None, number}
            others.append(sorted(other for other in of_x if other is not None))
        most = max(map(len, others), default=0)
        padded = torch.tensor([row + [-1] * (most - len(row)) for row in others], dtype=torch.long)
        device = log_probs.device
        return rank_golds(log_probs, torch.tensor(numbers, device=device), padded.view(len(facts), most).to(device))

    def _gold_numbers(self, facts: Sequence[Fact]) -> list[int]:
        numbers = [number for number in self.numbers_of([fact.y for fact in facts]) if number is not None]
        if len(numbers) < len(facts):
            raise ValueError("only facts whose y is one of the answers can be ranked")
        return numbers

    def best(self, log_probs: Float[Tensor, "facts answers"], top: int) -> list[tuple[tuple[str, ...], Tensor]]:
        """Return the most probable answers of each row, and their probabilities."""
        least = log_probs.topk(min(max(top, 1), log_probs.shape[1]), dim=1).values[:, -1:]
        found = []
        for of_fact, last in zip(log_probs, least, strict=True):
            answers = best_answers(of_fact, last, top)
            found.append((tuple(map(self.word, answers.tolist())), of_fact[answers].exp()))
        return found

    def rankings(self, ranked: Ranked, best: Sequence[tuple[tuple[str, ...], Tensor]] = ()) -> list[Ranking]:
        """Convert ranks to rankings, with the best answers to each fact if there are any."""
        none: tuple[tuple[str, ...], Tensor] = (), torch.empty(0)
        columns = (ranked.filtered.tolist(), ranked.raw.tolist(), ranked.log_probabilities.tolist())
        return [
            Ranking(rank, raw, log_probability, words, tuple(probabilities.tolist()))
            for rank, raw, log_probability, (words, probabilities) in zip(
                *columns, best or [none] * len(ranked.raw), strict=True
            )
        ]

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
    def mean_prior(self, relation: Relation, *, seed: int = 0, most: int = MOST_XS_OF_PRIOR) -> "ListedPrior":
        """Return the mean of p(y | x, r) over the distinct x's of train; of more than `most`, that many are drawn with
        the seed. It takes as long as asking about that many facts, but only as much memory as a few of them."""
        distinct = sorted({fact.x for fact in relation.train})
        # Drawn first: most of a million x's are never asked, and tokenising them takes as long as the rest of a run.
        some = drawn(distinct, most, seed)
        reasons = self.why_unaskable(some)
        xs = [x for x, reason in zip(some, reasons, strict=True) if reason is None]
        if not xs:
            raise NothingLeft(f"train x's of {relation.name}", Counter(reason for reason in reasons if reason))
        lm, (words, rows) = self.prompts.lm, self._words(xs)
        total = torch.full((self.count,), -torch.inf, dtype=sum_dtype(lm), device=lm.device)
        for batch in rows.split(self.asked_at_once):
            # Summed as logarithms: tiny probabilities would underflow to a prior of 0.
            total = torch.logaddexp(total, self.log_probs(words, batch).to(total.dtype).logsumexp(0))
        of = len(xs) if len(some) == len(distinct) else len(distinct)
        log_mean = total - torch.log(torch.tensor(len(xs), dtype=total.dtype))
        return ListedPrior(mean_description(len(xs), of, seed), self, log_mean)

    @torch.no_grad()
    def masked_prior(self) -> "ListedPrior | None":
        """Return p(y | r) with one mask token in place of x; None if the LM is not asked with masks."""
        words = self._masked_x()
        if words is None:
            return None
        lm = self.prompts.lm
        log_weights = self._static_log_weights() if self.prompts.weighting.reads_x else None
        log_probs = self.log_probs(words, torch.zeros(1, dtype=torch.long, device=lm.device), log_weights=log_weights)
        return ListedPrior("the answer to one mask token in place of x", self, log_probs[0].to(sum_dtype(lm)))


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
            ranked = self.answers.ranked(log_probs.expand(len(some), -1), some, golds)
            found += self.answers.rankings(ranked, best * len(some))
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
        ranked = self.answers.ranked(corrected, facts, golds)
        return self.answers.rankings(ranked, self.answers.best(corrected, top))
