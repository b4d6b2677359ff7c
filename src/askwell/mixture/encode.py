"""Facts in the tokens of a mixture's LM, and what is left out on the way."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from askwell.data.facts import Fact, Relation, SplitName
from askwell.errors import NothingLeft
from askwell.lms.batches import PLACES, Words, words_of
from askwell.mixture.answers import spell

if TYPE_CHECKING:
    from askwell.mixture.mixture import Mixture

NOT_ONE_TOKEN = "y is not one token of the LM"
TOO_LONG = "x is longer than the LM's context allows"
NO_TOKENS = "x has no token of the LM"


@dataclass(frozen=True)
class LeftOutFact:
    """A fact that is not asked, and why."""

    fact: Fact
    reason: str


@dataclass(frozen=True)
class EncodedFacts:
    """Facts that a mixture can be asked."""

    facts: tuple[Fact, ...]
    xs: Words
    answers: Int[Tensor, " facts"]
    """The number of y among the mixture's answers."""
    gold_tokens: Int[Tensor, "places facts"]
    """The token that spells y at each place, -1 where it is not one token."""

    def __len__(self) -> int:
        return len(self.facts)

    def subset(self, kept: Bool[Tensor, " facts"]) -> "EncodedFacts":
        """Those of the facts that are marked as kept."""
        return EncodedFacts(
            tuple(fact for fact, is_kept in zip(self.facts, kept.tolist(), strict=True) if is_kept),
            Words(self.xs.ids[:, kept], self.xs.lengths[:, kept]),
            self.answers[kept],
            self.gold_tokens[:, kept],
        )


def encode_facts(mixture: "Mixture", facts: Iterable[Fact]) -> tuple[EncodedFacts, list[LeftOutFact]]:
    """The facts that the mixture can be asked, and those that are left out."""
    facts = list(facts)
    left_out: list[LeftOutFact] = []
    ys = list(dict.fromkeys(fact.y for fact in facts))
    answers = dict(zip(ys, _gold_answers(mixture, ys), strict=True))
    unaskable = why_unaskable(mixture, [fact.x for fact in facts])
    kept: list[Fact] = []
    for fact, reason in zip(facts, unaskable, strict=True):
        if answers[fact.y] is None:
            left_out.append(LeftOutFact(fact, NOT_ONE_TOKEN))
        elif reason is not None:
            left_out.append(LeftOutFact(fact, reason))
        else:
            kept.append(fact)
    numbers = torch.tensor([answers[fact.y] for fact in kept], dtype=torch.long, device=mixture.lm.device)
    xs = words_of([fact.x for fact in kept], mixture.lm.wording, mixture.lm.device)
    return EncodedFacts(tuple(kept), xs, numbers, mixture.answer_space.tokens[:, numbers]), left_out


class EncodedRelation:
    """The facts of a relation as a mixture takes them. Each split is encoded once, when it is first needed."""

    def __init__(self, mixture: "Mixture", relation: Relation) -> None:
        self.relation = relation
        self._mixture = mixture
        self._encoded: dict[SplitName, tuple[EncodedFacts, tuple[LeftOutFact, ...]]] = {}

    def split(self, name: SplitName) -> EncodedFacts:
        """The facts of a split that the mixture can be asked."""
        return self._of(name)[0]

    def left_out(self, name: SplitName) -> tuple[LeftOutFact, ...]:
        """The facts of a split that it cannot be asked."""
        return self._of(name)[1]

    def need(self, name: SplitName) -> EncodedFacts:
        """The same as `split`, where it is an error that there are none."""
        if not len(self.split(name)):
            raise NothingLeft(f"{name} facts of {self.relation.name}", count_reasons(self.left_out(name)))
        return self.split(name)

    def _of(self, name: SplitName) -> tuple[EncodedFacts, tuple[LeftOutFact, ...]]:
        if name not in self._encoded:
            facts, left_out = encode_facts(self._mixture, self.relation.split(name))
            self._encoded[name] = facts, tuple(left_out)
        return self._encoded[name]


def encode_relation(mixture: "Mixture", relation: Relation) -> EncodedRelation:
    """The relation's facts in the tokens of the mixture's LM."""
    return EncodedRelation(mixture, relation)


def why_unaskable(mixture: "Mixture", xs: Sequence[str]) -> list[str | None]:
    """For each x the reason why the LM cannot be asked about it, None where it can."""
    if not xs:
        return []
    words = words_of(xs, mixture.lm.wording, mixture.lm.device)
    empty = (words.lengths == 0).any(0).tolist()
    longest = mixture.pairs.longest_question(words).tolist()
    limit = mixture.lm.context
    return [
        NO_TOKENS if is_empty else TOO_LONG if limit is not None and length > limit else None
        for is_empty, length in zip(empty, longest, strict=True)
    ]


def count_reasons(left_out: Iterable[LeftOutFact]) -> dict[str, int]:
    """How many facts were left out for each reason."""
    return dict(Counter(fact.reason for fact in left_out))


def _gold_answers(mixture: "Mixture", ys: Iterable[str]) -> list[int | None]:
    """The number of each y among the mixture's answers; in a product every prompt must have a form of it."""
    space, needed = mixture.answer_space, [PLACES.index(place) for place in mixture.answer_space.places]
    numbers = [space.number_of(spell(mixture.lm, y)) for y in ys]
    if mixture.spec.combine == "mixture":
        return numbers
    return [n if n is not None and bool((space.tokens[needed, n] >= 0).all()) else None for n in numbers]
