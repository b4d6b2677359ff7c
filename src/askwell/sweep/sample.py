"""A sample of a relation's facts, for sweeps that are to be done in hours."""

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from askwell.facts import Fact, Relation
from askwell.facts.fact import Counts


@dataclass(frozen=True)
class SampledRelation(Relation):
    """Some facts of a relation. The golds stay those of the whole: a right answer is right, drawn or not."""

    whole: Relation

    @cached_property
    def golds(self) -> Mapping[str, tuple[str, ...]]:
        """For each x all its right ys, of facts that were not drawn, too."""
        return self.whole.golds

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the sample and of the whole, on which the golds depend."""
        drawn = Relation.of(self.name, self.train, self.dev, self.test)
        return hashlib.sha256(f"{drawn.digest} of {self.whole.digest}".encode()).hexdigest()


def sample(relation: Relation, *, train: int | None, dev: int | None, test: int | None, seed: int) -> Relation:
    """The relation with at most so many facts of each split; larger samples hold the smaller ones of the same seed."""
    sizes = {"train": train, "dev": dev, "test": test}
    if all(most is None or most >= len(relation.split(name)) for name, most in sizes.items()):
        return relation
    drawn = {name: _drawn(relation.split(name), most, f"{seed} {name}") for name, most in sizes.items()}
    counts = Counts.of(drawn["train"], drawn["dev"], drawn["test"])
    return SampledRelation(relation.name, **drawn, counts=counts, whole=relation)


def _drawn(facts: tuple[Fact, ...], most: int | None, seed: str) -> tuple[Fact, ...]:
    if most is None:
        return facts
    shuffled = list(facts)
    random.Random(seed).shuffle(shuffled)
    return tuple(shuffled[:most])
