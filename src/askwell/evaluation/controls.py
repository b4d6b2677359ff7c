"""Answers that do not look at x: what they score needs no knowledge of x.

- "majority" gives the ys of train by how often they stand there (repeated lines counted). A y that train does not have
  stands behind all that it has: all such answers of the vocabulary share one rank, as equal answers do everywhere.
  Ys that are no answer of the LM cannot be given and are passed over.
- "prior" gives the mean of the prompts' own answers p(y | x, r) over x's of train.
- "prior-masked-x" gives what the prompts answer to one mask token in the place of x, where the LM is asked with masks.

Beside them stands "prior-corrected", which does look at x: answers are ranked by log p(y | x, r) - log prior(y), so
that an answer which the prompts give to everything counts for little. It is another score of the same LM, and so none
of the controls that a score is held against.
"""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.data.facts import Relation, SplitName
from askwell.errors import NothingLeft
from askwell.evaluation.evaluate import best_answers, other_golds, rank_golds
from askwell.evaluation.metrics import RANK_METRICS, scores_of
from askwell.evaluation.outcomes import Outcome
from askwell.lms.batches import PLACES, Words, words_of
from askwell.mixture.answers import Candidates
from askwell.mixture.encode import EncodedFacts, encode_facts, why_unaskable
from askwell.mixture.mixture import Mixture

MAJORITY, PRIOR, PRIOR_MASKED_X, PRIOR_CORRECTED = "majority", "prior", "prior-masked-x", "prior-corrected"
MOST_XS = 500
"""A prior is the mean over at most so many x's of train."""
# Facts × answers numbers that are held at once.
_NUMBERS_AT_ONCE = 2**23


@dataclass(frozen=True)
class Prior:
    """One distribution over a mixture's answers, which is given to every x."""

    log_probs: Float[Tensor, " answers"]
    description: str
    """What it is made from, in words."""


def majority(mixture: Mixture, relation: Relation) -> Prior:
    """The shares of the ys of train among its facts whose y is an answer of the mixture."""
    counts = Counter(fact.y for fact in relation.train)
    shares = torch.zeros(mixture.answer_space.count, dtype=torch.float64)
    for number, count in zip(mixture.answer_space.numbers_of(list(counts)), counts.values(), strict=True):
        if number is not None:
            shares[number] += count
    total = int(shares.sum())
    if not total:
        raise NothingLeft(f"train facts of {relation.name}", {"y is not one token of the LM": len(relation.train)})
    log_shares = (shares / total).log().to(device=mixture.lm.device, dtype=_sum_dtype(mixture))
    return Prior(log_shares, f"how often each y stands in {total} train facts")


@torch.no_grad()
def prompt_prior(mixture: Mixture, relation: Relation, *, most: int = MOST_XS, seed: int = 0) -> Prior:
    """The mean of p(y | x, r) over the distinct x's of train; of more than `most`, so many are drawn by the seed.

    It takes as much time as asking about so many facts, and the memory of a few of them.
    """
    distinct = sorted({fact.x for fact in relation.train})
    reasons = why_unaskable(mixture, distinct)
    xs = [x for x, reason in zip(distinct, reasons, strict=True) if reason is None]
    if not xs:
        raise NothingLeft(f"train x's of {relation.name}", Counter(reason for reason in reasons if reason))
    description = f"the mean of the answers to all {len(xs)} x's of train"
    if len(xs) > most:
        description = f"the mean of the answers to {most} of the {len(xs)} x's of train, drawn with the seed {seed}"
        xs = sorted(random.Random(seed).sample(xs, most))
    words = words_of(xs, mixture.lm.wording, mixture.lm.device)
    total = torch.full((mixture.answer_space.count,), -torch.inf, dtype=_sum_dtype(mixture), device=mixture.lm.device)
    for some in torch.arange(len(xs), device=mixture.lm.device).split(_facts_at_once(mixture)):
        # Summed as logarithms: a probability that is too small for a number of its own would be a prior of 0.
        total = torch.logaddexp(total, mixture.log_probs(words, some).to(total.dtype).logsumexp(0))
    return Prior(total - torch.log(torch.tensor(len(xs), dtype=total.dtype)), description)


@torch.no_grad()
def masked_prior(mixture: Mixture) -> Prior | None:
    """p(y | r) with one mask token in the place of x; None where the LM is not asked with masks.

    Weights that depend on x are left at p(t | r): there is no x whose probability they could follow.
    """
    mask = mixture.lm.tokenizer.mask_token_id
    if mask is None or not mixture.lm.family.masks_x:
        return None
    device = mixture.lm.device
    words = Words(
        torch.full((len(PLACES), 1, 1), mask, device=device),
        torch.ones(len(PLACES), 1, dtype=torch.long, device=device),
    )
    only = torch.zeros(1, dtype=torch.long, device=device)
    if mixture.weighting.reads_x:
        log_probs = torch.full((1, mixture.answer_space.count), -torch.inf, device=device)
        for prompt, log_weight in enumerate(mixture.weight_logits.log_softmax(0)):
            log_probs = torch.logaddexp(log_probs, log_weight + mixture.prompt_log_probs(words, only, prompt))
    else:
        log_probs = mixture.log_probs(words, only)
    return Prior(log_probs[0].to(_sum_dtype(mixture)), "the answer to one mask token in the place of x")


def prior_outcomes(
    prior: Prior,
    mixture: Mixture,
    relation: Relation,
    *,
    split: SplitName = "test",
    candidates: Candidates | None = None,
    top: int = 10,
) -> list[Outcome]:
    """What comes of giving the prior as the answer to every x: ranks, probabilities and its best answers.

    Facts that an evaluation of the mixture leaves out are left out here, and ranks leave out the other golds.
    """
    asked = _Asked.of(mixture, relation, split, candidates)
    log_probs = prior.log_probs if asked.allowed is None else prior.log_probs[asked.allowed]
    best = asked.best(log_probs, top)
    outcomes: list[Outcome] = []
    for some in asked.chunks:
        outcomes += asked.outcomes(some, log_probs.expand(len(some), -1), repeat(best, len(some)))
    return outcomes


@torch.no_grad()
def corrected_outcomes(
    prior: Prior,
    mixture: Mixture,
    relation: Relation,
    *,
    split: SplitName = "test",
    candidates: Candidates | None = None,
    top: int = 10,
) -> list[Outcome]:
    """What comes of ranking answers by log p(y | x, r) - log prior(y); every fact of the split is asked once more.

    Probabilities are those of these scores, normalised over all answers that are ranked. An answer to which the prior
    gives no probability at all gets none.
    """
    asked = _Asked.of(mixture, relation, split, candidates)
    log_prior = prior.log_probs if asked.allowed is None else prior.log_probs[asked.allowed]
    outcomes: list[Outcome] = []
    for some in asked.chunks:
        scores = mixture.log_probs(asked.facts.xs, some, asked.allowed).to(log_prior.dtype) - log_prior
        scores = scores.masked_fill(log_prior == -torch.inf, -torch.inf)
        log_probs = scores.log_softmax(1)
        outcomes += asked.outcomes(some, log_probs, (asked.best(row, top) for row in log_probs))
    return outcomes


@dataclass(frozen=True)
class CheapControls:
    """The controls that need no other LM, and the prior-corrected score, for some splits of a relation."""

    descriptions: dict[str, str]
    """What each is, by name."""
    outcomes: dict[str, dict[SplitName, list[Outcome]]]
    """By name and split."""
    missing: dict[str, str]
    """What could not be had, and why."""

    @property
    def controls(self) -> dict[str, dict[SplitName, list[Outcome]]]:
        """The outcomes of the controls alone."""
        return {name: by_split for name, by_split in self.outcomes.items() if name != PRIOR_CORRECTED}

    def as_json(self) -> dict[str, dict[str, Any]]:
        """For each name what it is, and its scores on each split, as means over facts, in per cent."""
        return {
            name: {"description": self.descriptions[name]}
            | {split: scores_of(outcomes, RANK_METRICS) for split, outcomes in by_split.items()}
            for name, by_split in self.outcomes.items()
        }


def cheap_controls(
    mixture: Mixture,
    relation: Relation,
    *,
    splits: Sequence[SplitName] = ("test", "dev"),
    corrected: Sequence[SplitName] = ("test", "dev"),
    candidates: Candidates | None = None,
    seed: int = 0,
) -> CheapControls:
    """All that can be had of majority, prior, prior with x masked, and, for the splits in `corrected`, the corrected.

    All but the last cost one question for each x of train, at most 500; the last asks about all facts once more.
    """
    priors: dict[str, Prior] = {}
    missing: dict[str, str] = {}
    try:
        priors[MAJORITY] = majority(mixture, relation)
    except NothingLeft as nothing:
        missing[MAJORITY] = str(nothing)
    try:
        priors[PRIOR] = prompt_prior(mixture, relation, seed=seed)
    except NothingLeft as nothing:
        missing |= {PRIOR: str(nothing), PRIOR_CORRECTED: str(nothing)}
    if (masked := masked_prior(mixture)) is not None:
        priors[PRIOR_MASKED_X] = masked
    outcomes: dict[str, dict[SplitName, list[Outcome]]] = {
        name: {split: prior_outcomes(prior, mixture, relation, split=split, candidates=candidates) for split in splits}
        for name, prior in priors.items()
    }
    descriptions = {name: prior.description for name, prior in priors.items()}
    if PRIOR in priors and corrected:
        prior = priors[PRIOR]
        outcomes[PRIOR_CORRECTED] = {
            split: corrected_outcomes(prior, mixture, relation, split=split, candidates=candidates)
            for split in corrected
        }
        descriptions[PRIOR_CORRECTED] = f"log p(y | x, r) - log prior(y), the prior being {prior.description}"
    return CheapControls(descriptions, outcomes, missing)


@dataclass(frozen=True)
class _Best:
    """The most probable answers, best first."""

    words: tuple[str, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class _Asked:
    """The facts of a split that a mixture is asked, and what their ranks need."""

    mixture: Mixture
    relation: Relation
    facts: EncodedFacts
    allowed: Int[Tensor, " candidates"] | None
    golds: Int[Tensor, " facts"]
    others: Int[Tensor, "facts most_others"]

    @classmethod
    def of(cls, mixture: Mixture, relation: Relation, split: SplitName, candidates: Candidates | None) -> "_Asked":
        facts, left_out = encode_facts(mixture, relation.split(split))
        allowed = None if candidates is None else candidates.answers(mixture)[0]
        if allowed is not None:
            facts = facts.subset(torch.isin(facts.answers, allowed))
        if not len(facts):
            raise NothingLeft(f"{split} facts of {relation.name}", Counter(fact.reason for fact in left_out))
        golds, others = facts.answers, other_golds(mixture, facts, relation.golds)
        if allowed is not None:
            place = torch.full((mixture.answer_space.count + 1,), -1, device=allowed.device)  # the last is for padding
            place[allowed] = torch.arange(len(allowed), device=allowed.device)
            golds, others = place[golds], place[others]
        return cls(mixture, relation, facts, allowed, golds, others)

    @property
    def chunks(self) -> Iterable[Int[Tensor, " facts"]]:
        return torch.arange(len(self.facts), device=self.mixture.lm.device).split(_facts_at_once(self.mixture))

    def best(self, log_probs: Float[Tensor, " answers"], top: int) -> _Best:
        """The most probable answers."""
        answers = best_answers(log_probs, log_probs.topk(min(top, len(log_probs))).values[-1:], top)
        numbers = answers if self.allowed is None else self.allowed[answers]
        words = tuple(self.mixture.answer_space.word(number) for number in numbers.tolist())
        return _Best(words, tuple(log_probs[answers].exp().tolist()))

    def outcomes(
        self, some: Int[Tensor, " facts"], log_probs: Float[Tensor, "facts answers"], best: Iterable[_Best]
    ) -> list[Outcome]:
        """The outcomes of some facts, given the log-probabilities of all answers that are ranked."""
        ranked = rank_golds(log_probs, self.golds[some], self.others[some])
        found = []
        for row, (number, answers) in enumerate(zip(some.tolist(), best, strict=True)):
            fact = self.facts.facts[number]
            found.append(
                Outcome(
                    relation=self.relation.name,
                    x=fact.x,
                    y=fact.y,
                    golds=self.relation.golds[fact.x],
                    rank=float(ranked.filtered[row]),
                    raw_rank=float(ranked.raw[row]),
                    log_probability=float(ranked.log_probabilities[row]),
                    answers=answers.words,
                    probabilities=answers.probabilities,
                )
            )
        return found


def _facts_at_once(mixture: Mixture) -> int:
    return max(1, _NUMBERS_AT_ONCE // mixture.answer_space.count)


def _sum_dtype(mixture: Mixture) -> torch.dtype:
    """Double precision, where the device has it."""
    return torch.float32 if mixture.lm.device.type == "mps" else torch.float64
