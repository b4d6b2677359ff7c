"""Ranks the right answer of each fact among all answers, or among candidates."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.data.facts import Relation, SplitName
from askwell.errors import NotFinite, NothingLeft
from askwell.evaluation.outcomes import Outcome
from askwell.mixture.answers import Candidates
from askwell.mixture.encode import EncodedFacts, EncodedRelation, LeftOutFact, encode_relation
from askwell.mixture.mixture import Mixture

NOT_A_CANDIDATE = "y is not among the candidates"
# Facts × answers numbers that are held at once.
_NUMBERS_AT_ONCE = 2**23


@dataclass(frozen=True)
class Ranked:
    """Where the gold answers of some facts stand."""

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
    """Ranks: 1 + the number of answers more probable + half the number of others exactly as probable.

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


def other_golds(
    mixture: Mixture, facts: EncodedFacts, golds: Mapping[str, Sequence[str]]
) -> Int[Tensor, "facts most_others"]:
    """For each fact the numbers of the other right answers for its x, padded with -1."""
    ys = {y: None for fact in facts.facts for y in golds.get(fact.x, ())}
    number_of = dict(zip(ys, mixture.answer_space.numbers_of(list(ys)), strict=True))
    rows = []
    for fact, answer in zip(facts.facts, facts.answers.tolist(), strict=True):
        numbers = {number_of[y] for y in golds.get(fact.x, ())} - {None, answer}
        rows.append(sorted(number for number in numbers if number is not None))
    most = max(map(len, rows), default=0)
    padded = [row + [-1] * (most - len(row)) for row in rows]
    return torch.tensor(padded, dtype=torch.long, device=mixture.lm.device).view(len(rows), most)


def best_answers(log_probs: Float[Tensor, " answers"], least: Float[Tensor, " 1"], top: int) -> Int[Tensor, " best"]:
    """The best answers, where `least` is the log-probability of the last of them; equal ones stand in their order."""
    reached = (log_probs >= least).nonzero()[:, 0]
    return reached[log_probs[reached].sort(descending=True, stable=True).indices[:top]]


@dataclass(frozen=True)
class BestAnswers:
    """The most probable answers to a question, best first."""

    words: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()


class AskedFacts:
    """The facts of a split that a mixture can be asked, and what ranking their golds needs."""

    def __init__(
        self,
        mixture: Mixture,
        relation: Relation,
        facts: EncodedFacts,
        candidates: Candidates | None = None,
        left_out: Sequence[LeftOutFact] = (),
    ) -> None:
        self.mixture, self.relation, self.candidates = mixture, relation, candidates
        self.allowed, self.candidates_left_out = (None, 0) if candidates is None else candidates.answers(mixture)
        self.facts, self.left_out = facts, tuple(left_out)
        if self.allowed is not None:
            is_candidate = torch.isin(facts.answers, self.allowed)
            self.facts = facts.subset(is_candidate)
            self.left_out += tuple(
                LeftOutFact(fact, NOT_A_CANDIDATE)
                for fact, kept in zip(facts.facts, is_candidate.tolist(), strict=True)
                if not kept
            )
        self._golds, self._others = self.facts.answers, other_golds(mixture, self.facts, relation.golds)
        if self.allowed is not None:
            place = torch.full((mixture.answer_space.count + 1,), -1, device=self.allowed.device)  # the last: padding
            place[self.allowed] = torch.arange(len(self.allowed), device=self.allowed.device)
            self._golds, self._others = place[self._golds], place[self._others]

    @property
    def vocabulary(self) -> str:
        """Among which answers golds are ranked, in words."""
        if self.allowed is None or self.candidates is None:
            return self.mixture.answer_space.description
        return f"{len(self.allowed)} candidates of {self.candidates.name}"

    def chunks(self) -> Iterable[Int[Tensor, " facts"]]:
        """The numbers of the facts, as many at once as memory allows."""
        return torch.arange(len(self.facts), device=self.mixture.lm.device).split(facts_at_once(self.mixture))

    def rank(self, some: Int[Tensor, " facts"], log_probs: Float[Tensor, "facts answers"]) -> Ranked:
        """The ranks of some facts, given the log-probabilities of all answers that are ranked."""
        return rank_golds(log_probs, self._golds[some], self._others[some])

    def best(self, log_probs: Float[Tensor, "facts answers"], top: int) -> list[BestAnswers]:
        """The most probable answers of each row."""
        least = log_probs.topk(min(max(top, 1), log_probs.shape[1]), dim=1).values[:, -1:]
        found = []
        for row in range(len(log_probs)):
            answers = best_answers(log_probs[row], least[row], top)
            probabilities = log_probs[row, answers].exp().tolist()
            numbers = answers if self.allowed is None else self.allowed[answers]
            words = tuple(self.mixture.answer_space.word(number) for number in numbers.tolist())
            found.append(BestAnswers(words, tuple(probabilities)))
        return found

    def outcomes(self, some: Int[Tensor, " facts"], ranked: Ranked, best: Iterable[BestAnswers]) -> list[Outcome]:
        """The outcomes of some facts."""
        outcomes = []
        columns = (ranked.filtered.tolist(), ranked.raw.tolist(), ranked.log_probabilities.tolist())
        for number, rank, raw_rank, log_probability, answers in zip(some.tolist(), *columns, best, strict=True):
            fact = self.facts.facts[number]
            outcomes.append(
                Outcome(
                    relation=self.relation.name,
                    x=fact.x,
                    y=fact.y,
                    golds=self.relation.golds[fact.x],
                    rank=rank,
                    raw_rank=raw_rank,
                    log_probability=log_probability,
                    answers=answers.words,
                    probabilities=answers.probabilities,
                )
            )
        return outcomes


def asked_facts(
    mixture: Mixture,
    relation: Relation,
    split: SplitName,
    candidates: Candidates | None = None,
    facts: EncodedRelation | None = None,
) -> AskedFacts:
    """The facts of a split that can be asked; it is an error if there are none."""
    facts = facts or encode_relation(mixture, relation)
    asked = AskedFacts(mixture, relation, facts.split(split), candidates, facts.left_out(split))
    if not len(asked.facts):
        raise NothingLeft(f"{split} facts of {relation.name}", Counter(fact.reason for fact in asked.left_out))
    return asked


def facts_at_once(mixture: Mixture) -> int:
    """How many facts can be asked at once while the log-probabilities of all answers are held."""
    return max(1, _NUMBERS_AT_ONCE // mixture.answer_space.count)
