"""The rank of the right answer among all others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.errors import NotFinite
from askwell.mixture import Mixture
from askwell.mixture.encode import EncodedFacts


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
