"""Ranks the right answer of each fact among all answers, or among candidates."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.data.facts import Relation, SplitName
from askwell.errors import NotFinite
from askwell.evaluation.agreement import PromptObserver
from askwell.evaluation.answer_lists import AnswerList, answers_among
from askwell.evaluation.controls import Prior, priors_of
from askwell.evaluation.labels import MOST_LABELS, LabelFigures, label_figures
from askwell.evaluation.open_answers import OpenFacts
from askwell.evaluation.outcomes import Outcome
from askwell.mixture.answers import AnswerKind
from askwell.mixture.candidates import Candidates
from askwell.mixture.encode import EncodedFacts, EncodedRelation, LeftOutFact, encode_relation, no_facts_left
from askwell.mixture.mixture import Mixture

NOT_A_CANDIDATE = "y is not among the candidates"


@dataclass(frozen=True)
class Ranked:
    """The ranks of the gold answers of some facts."""

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


def best_answers(log_probs: Float[Tensor, " answers"], least: Float[Tensor, " 1"], top: int) -> Int[Tensor, " best"]:
    """The best answers, where `least` is the log-probability of the last of them; equal ones keep their order."""
    reached = (log_probs >= least).nonzero()[:, 0]
    return reached[log_probs[reached].sort(descending=True, stable=True).indices[:top]]


@dataclass(frozen=True)
class BestAnswers:
    """The most probable answers to a question, best first."""

    words: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()


class ListedFacts:
    """The facts of a split that a mixture can be asked about, where the probabilities of all answers are computed."""

    def __init__(
        self, answers: AnswerList, relation: Relation, facts: EncodedFacts, left_out: Sequence[LeftOutFact] = ()
    ) -> None:
        self.mixture, self.relation, self.answers = answers.mixture, relation, answers
        golds = answers.numbers_of([fact.y for fact in facts.facts])
        self.left_out = tuple(left_out) + tuple(
            LeftOutFact(fact, NOT_A_CANDIDATE) for fact, gold in zip(facts.facts, golds, strict=True) if gold is None
        )
        device = self.mixture.lm.device
        is_asked = torch.tensor([gold is not None for gold in golds], dtype=torch.bool, device=device)
        self.facts = facts.subset(is_asked)
        self._golds = torch.tensor([gold for gold in golds if gold is not None], dtype=torch.long, device=device)
        self._others = self._other_golds().to(device)

    @property
    def kind(self) -> AnswerKind:
        """What counts as an answer."""
        return self.answers.kind

    @property
    def vocabulary(self) -> str:
        """The answers that golds are ranked among, in words."""
        return self.answers.vocabulary

    @property
    def candidates_left_out(self) -> int:
        """How many candidates the LM cannot answer with."""
        return len(self.answers.left_out)

    def chunks(self) -> Iterable[Int[Tensor, " facts"]]:
        """The numbers of the facts, as many at once as memory allows."""
        return torch.arange(len(self.facts), device=self.mixture.lm.device).split(self.answers.facts_at_once)

    def observer(self) -> PromptObserver:
        """An observer that notes each prompt's own answers while facts are asked."""
        return self.answers.observer()

    def priors(self, seed: int) -> tuple[dict[str, Prior], dict[str, str]]:
        """Controls that need no x, and why others are missing."""
        return priors_of(self.answers, self.relation, seed=seed)

    def ask(
        self,
        some: Int[Tensor, " facts"],
        top: int = 10,
        observer: PromptObserver | None = None,
        prior: Prior | None = None,
    ) -> tuple[list[Outcome], list[Outcome]]:
        """The outcomes of some facts, and those corrected by a prior if there is one."""
        if observer is not None:
            observer.begin(len(some))
        log_probs = self.answers.log_probs(self.facts.xs, some, observer)
        if observer is not None:
            observer.end(log_probs)
        corrected = [] if prior is None else self.corrected_outcomes(prior, some, log_probs, top)
        ranked = self.rank(some, log_probs)
        if self.answers.is_closed:  # nothing else can be answered, so probabilities sum to one
            log_probs = log_probs.log_softmax(1)
            golds = log_probs.gather(1, self._golds[some, None])[:, 0]
            ranked = replace(ranked, log_probabilities=golds)
        return self.outcomes(some, ranked, self.best(log_probs, top)), corrected

    def prior_outcomes(self, prior: Prior, top: int = 10) -> list[Outcome]:
        """The outcomes if the prior is given as the answer to every x: ranks, probabilities and its best answers."""
        log_probs = prior.log_probs[None]
        (best,) = self.best(log_probs, top)
        outcomes: list[Outcome] = []
        for some in self.chunks():
            ranked = self.rank(some, log_probs.expand(len(some), -1))
            outcomes += self.outcomes(some, ranked, repeat(best, len(some)))
        return outcomes

    def corrected_outcomes(
        self, prior: Prior, some: Int[Tensor, " facts"], log_probs: Float[Tensor, "facts answers"], top: int = 10
    ) -> list[Outcome]:
        """The outcomes of some facts if answers are ranked by log p(y | x, r) - log prior(y).

        Probabilities are those of these scores, normalised over all answers that are ranked. An answer to which the
        prior gives no probability at all gets none.
        """
        log_prior = prior.log_probs
        scores = (log_probs.to(log_prior.dtype) - log_prior).masked_fill(log_prior == -torch.inf, -torch.inf)
        corrected = scores.log_softmax(1)
        return self.outcomes(some, self.rank(some, corrected), self.best(corrected, top))

    def rank(self, some: Int[Tensor, " facts"], log_probs: Float[Tensor, "facts answers"]) -> Ranked:
        """The ranks of some facts, given the log-probabilities of all answers that are ranked."""
        return rank_golds(log_probs, self._golds[some], self._others[some])

    def best(self, log_probs: Float[Tensor, "facts answers"], top: int) -> list[BestAnswers]:
        """The most probable answers of each row."""
        least = log_probs.topk(min(max(top, 1), log_probs.shape[1]), dim=1).values[:, -1:]
        found = []
        for row in range(len(log_probs)):
            answers = best_answers(log_probs[row], least[row], top)
            words = tuple(self.answers.word(number) for number in answers.tolist())
            found.append(BestAnswers(words, tuple(log_probs[row, answers].exp().tolist())))
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

    def labels(self, outcomes: Sequence[Outcome]) -> LabelFigures | None:
        """Precision, recall and F1 of each answer, if there are only a few to choose from."""
        if not self.answers.is_closed or self.answers.count > MOST_LABELS:
            return None
        ys = list(dict.fromkeys(y for outcome in outcomes for y in (outcome.y, *outcome.golds)))
        numbers = dict(zip(ys, self.answers.numbers_of(ys), strict=True))
        words = tuple(map(self.answers.word, range(self.answers.count)))
        return label_figures(outcomes, words, lambda y: None if (n := numbers[y]) is None else words[n])

    def _other_golds(self) -> Int[Tensor, "facts most_others"]:
        """For each fact the numbers of the other right answers for its x, padded with -1."""
        golds = self.relation.golds
        ys = list({y: None for fact in self.facts.facts for y in golds.get(fact.x, ())})
        number_of = dict(zip(ys, self.answers.numbers_of(ys), strict=True))
        rows = []
        for fact, answer in zip(self.facts.facts, self._golds.tolist(), strict=True):
            numbers = {number_of[y] for y in golds.get(fact.x, ())} - {None, answer}
            rows.append(sorted(number for number in numbers if number is not None))
        most = max(map(len, rows), default=0)
        padded = [row + [-1] * (most - len(row)) for row in rows]
        return torch.tensor(padded, dtype=torch.long).view(len(rows), most)


@runtime_checkable
class AskedFacts(Protocol):
    """The facts of a split that a mixture can be asked about, ranked among a list of answers or among all strings.

    Each kind has its own observers and priors.
    """

    facts: EncodedFacts
    left_out: tuple[LeftOutFact, ...]

    @property
    def vocabulary(self) -> str:
        """The answers that golds are ranked among, in words."""
        ...

    @property
    def candidates_left_out(self) -> int:
        """How many candidates the LM cannot answer with."""
        ...

    def chunks(self) -> Iterable[Int[Tensor, " facts"]]:
        """The numbers of the facts, as many at once as are asked together."""
        ...

    def observer(self) -> Any:
        """An observer that notes each prompt's own answers while facts are asked."""
        ...

    def priors(self, seed: int) -> tuple[dict[str, Any], dict[str, str]]:
        """Controls that need no x, and why others are missing."""
        ...

    def ask(
        self, some: Int[Tensor, " facts"], top: int = 10, observer: Any = None, prior: Any = None
    ) -> tuple[list[Outcome], list[Outcome]]:
        """The outcomes of some facts, and those corrected by a prior where that is possible."""
        ...

    def prior_outcomes(self, prior: Any, top: int = 10) -> list[Outcome]:
        """The outcomes if the prior is given as the answer to every x."""
        ...

    def labels(self, outcomes: Sequence[Outcome]) -> LabelFigures | None:
        """Precision, recall and F1 of each answer, if there are only a few to choose from."""
        ...


def asked_facts(
    mixture: Mixture,
    relation: Relation,
    split: SplitName,
    candidates: Candidates | None = None,
    facts: EncodedRelation | None = None,
) -> AskedFacts:
    """The facts of a split that can be asked; it is an error if there are none.

    Answers of any length are searched for, unless there are candidates: those given, or those that the mixture was
    tuned for."""
    candidates = candidates or mixture.candidates
    facts = facts or encode_relation(mixture, relation, candidates=candidates)
    encoded, left_out = facts.split(split), facts.left_out(split)
    if facts.kind.any_length and candidates is None:
        asked: AskedFacts = OpenFacts(mixture, relation, encoded, left_out)
    else:
        asked = ListedFacts(answers_among(mixture, candidates, facts.kind), relation, encoded, left_out)
    if not len(asked.facts):
        raise no_facts_left(f"{split} facts of {relation.name}", asked.left_out)
    return asked
