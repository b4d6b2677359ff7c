"""The plainest prior: always giving the y that is most frequent among the training facts, without asking the LM."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from askwell.facts import Fact


def ys_by_frequency(facts: Iterable[Fact]) -> tuple[str, ...]:
    """The ys of facts, the most frequent first."""
    counts = Counter(fact.y for fact in facts)
    return tuple(sorted(counts, key=lambda y: (-counts[y], y)))


def answered_by_frequency(
    ys: Sequence[str], golds: Mapping[str, Sequence[str]], facts: Iterable[Fact]
) -> dict[Fact, bool]:
    """Whether the first of the ys is right for each fact; other golds of its x are passed over, as in all ranks."""
    hits = {}
    for fact in facts:
        others = set(golds[fact.x]) - {fact.y}
        hits[fact] = next((y for y in ys if y not in others), None) == fact.y
    return hits
