"""The rank of the right answer among all others.

Evaluates mixtures on held-out facts.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.data.facts import Fact, Relation, SplitName
from askwell.errors import NotFinite, NothingLeft
from askwell.evaluation.metrics import (
    RANK_METRICS,
    Scores,
    by_relation,
    log_loss_of,
    macro,
    micro,
    scores_of,
    with_raw_ranks,
)
from askwell.evaluation.outcomes import Outcome
from askwell.mixture.answers import Candidates
from askwell.mixture.encode import EncodedFacts, LeftOutFact, encode_facts
from askwell.mixture.mixture import Mixture


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


NOT_A_CANDIDATE = "y is not among the candidates"
# Facts × answers numbers that are held at once.
_NUMBERS_AT_ONCE = 2**23


@dataclass(frozen=True)
class Evaluation:
    """What a mixture, or several of several relations, made of some facts."""

    split: SplitName
    vocabulary: str
    """Among which answers y was ranked."""
    outcomes: tuple[Outcome, ...]
    left_out: tuple[LeftOutFact, ...]
    candidates_left_out: int = 0

    @property
    def micro(self) -> Scores:
        """The mean over facts."""
        return micro(self.outcomes)

    @property
    def macro(self) -> Scores:
        """The mean of the relations' means."""
        return macro(self.outcomes)

    @property
    def log_loss(self) -> float:
        """The mean of -log p(y | x, r) in nats; infinite if some y has probability 0."""
        loss = log_loss_of(self.outcomes)
        return math.inf if loss is None else loss

    def for_card(self) -> dict[str, Any]:
        """The few figures that a saved mixture keeps of an evaluation."""
        beside = {"log_loss": log_loss_of(self.outcomes), "facts": len(self.outcomes), "vocabulary": self.vocabulary}
        return {**self.micro, **beside}

    def as_json(self) -> dict[str, Any]:
        """The figures, with what they are figures of; scores are in per cent, log-loss is in nats."""
        raw = with_raw_ranks(self.outcomes)
        return {
            "facts": len(self.outcomes),
            "left_out": dict(Counter(fact.reason for fact in self.left_out)),
            "left_out_facts": [{"x": left.fact.x, "y": left.fact.y, "reason": left.reason} for left in self.left_out],
            "split": self.split,
            "vocabulary": self.vocabulary,
            "candidates_left_out": self.candidates_left_out,
            "micro": self.micro,
            "macro": self.macro,
            "raw": {"micro": micro(raw, RANK_METRICS), "macro": macro(raw, RANK_METRICS)},
            "log_loss": log_loss_of(self.outcomes),
            "relations": {
                name: {"facts": len(outcomes), **scores_of(outcomes)}
                for name, outcomes in by_relation(self.outcomes).items()
            },
        }


def evaluate(
    mixture: Mixture,
    relation: Relation,
    *,
    split: SplitName = "test",
    candidates: Candidates | None = None,
    top: int = 10,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """What the mixture makes of the facts of a split; `progress` is told of facts done and facts in all."""
    facts, left_out = encode_facts(mixture, relation.split(split))
    allowed, no_answers = (None, 0) if candidates is None else candidates.answers(mixture)
    if allowed is not None:
        facts, not_candidates = _only_with_gold_among(facts, allowed)
        left_out += not_candidates
    if not len(facts):
        raise NothingLeft(f"{split} facts of {relation.name}", Counter(fact.reason for fact in left_out))
    outcomes: list[Outcome] = []
    for chosen, log_probs, ranked in _rank_all(mixture, facts, relation, allowed):
        least = log_probs.topk(min(max(top, 1), log_probs.shape[1]), dim=1).values[:, -1:]
        for row, number in enumerate(chosen.tolist()):
            fact, answers = facts.facts[number], best_answers(log_probs[row], least[row], top)
            probabilities = log_probs[row, answers].exp()
            if allowed is not None:
                answers = allowed[answers]
            words = tuple(mixture.answer_space.word(answer) for answer in answers.tolist())
            outcomes.append(_outcome(relation, fact, ranked, row, words, tuple(probabilities.tolist())))
        if progress is not None:
            progress(len(outcomes), len(facts))
    return Evaluation(split, _vocabulary(mixture, allowed, candidates), tuple(outcomes), tuple(left_out), no_answers)


@torch.no_grad()
def score_facts(mixture: Mixture, facts: EncodedFacts, relation: Relation) -> dict[str, Any]:
    """The scores of facts among all answers, their log-loss (None if it is infinite) and their number: what choosing
    among states of a mixture needs, without the most probable answers to each fact."""
    outcomes, log_probabilities = [], []
    for chosen, _, ranked in _rank_all(mixture, facts, relation, None):
        outcomes += [_outcome(relation, facts.facts[number], ranked, row) for row, number in enumerate(chosen.tolist())]
        log_probabilities.append(ranked.log_probabilities)
    log_loss = -float(torch.cat(log_probabilities).mean())
    beside = {"log_loss": log_loss if math.isfinite(log_loss) else None, "facts": len(facts)}
    return {**scores_of(outcomes, RANK_METRICS), **beside}


def together(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Evaluations of several relations as one."""
    first = evaluations[0]
    return Evaluation(
        first.split,
        "; ".join(dict.fromkeys(evaluation.vocabulary for evaluation in evaluations)),
        tuple(outcome for evaluation in evaluations for outcome in evaluation.outcomes),
        tuple(fact for evaluation in evaluations for fact in evaluation.left_out),
        first.candidates_left_out,
    )


def _rank_all(
    mixture: Mixture, facts: EncodedFacts, relation: Relation, allowed: Int[Tensor, " candidates"] | None
) -> Iterable[tuple[Int[Tensor, " facts"], Tensor, Ranked]]:
    """Chunks of facts, with the log-probabilities of all allowed answers and the ranks of the golds among them."""
    golds, others = facts.answers, other_golds(mixture, facts, relation.golds)
    if allowed is not None:
        place = torch.full((mixture.answer_space.count + 1,), -1, device=allowed.device)  # the last is for padding
        place[allowed] = torch.arange(len(allowed), device=allowed.device)
        golds, others = place[golds], place[others]
    at_once = max(1, _NUMBERS_AT_ONCE // mixture.answer_space.count)
    for chosen in torch.arange(len(facts), device=mixture.lm.device).split(at_once):
        log_probs = mixture.log_probs(facts.xs, chosen, allowed)
        yield chosen, log_probs, rank_golds(log_probs, golds[chosen], others[chosen])


def _outcome(
    relation: Relation,
    fact: Fact,
    ranked: Ranked,
    row: int,
    answers: tuple[str, ...] = (),
    probabilities: tuple[float, ...] = (),
) -> Outcome:
    return Outcome(
        relation=relation.name,
        x=fact.x,
        y=fact.y,
        golds=relation.golds[fact.x],
        rank=float(ranked.filtered[row]),
        raw_rank=float(ranked.raw[row]),
        log_probability=float(ranked.log_probabilities[row]),
        answers=answers,
        probabilities=probabilities,
    )


def best_answers(log_probs: Float[Tensor, " answers"], least: Float[Tensor, " 1"], top: int) -> Int[Tensor, " best"]:
    """The best answers, where `least` is the log-probability of the last of them; equal ones stand in their order."""
    reached = (log_probs >= least).nonzero()[:, 0]
    return reached[log_probs[reached].sort(descending=True, stable=True).indices[:top]]


def _only_with_gold_among(facts: EncodedFacts, allowed: Tensor) -> tuple[EncodedFacts, list[LeftOutFact]]:
    is_candidate = torch.isin(facts.answers, allowed)
    left_out = [
        LeftOutFact(fact, NOT_A_CANDIDATE)
        for fact, kept in zip(facts.facts, is_candidate.tolist(), strict=True)
        if not kept
    ]
    return facts.subset(is_candidate), left_out


def _vocabulary(mixture: Mixture, allowed: Tensor | None, candidates: Candidates | None) -> str:
    if allowed is None or candidates is None:
        return f"all {mixture.answer_space.count} answers of {mixture.lm.identity.name}"
    return f"{len(allowed)} candidates of {candidates.name}"
