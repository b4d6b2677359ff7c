"""The rule that keeps a withheld fact withheld, as something that can be checked.

A withheld fact (x, y) leaks

- if one sentence holds both x and y as whole words, whatever it says (`Withheld.leaks_of`); or
- if it follows from told facts (`entailed`): "next to" holds in both directions, and "in" is transitive, with the
  capital of a country in that country. A name is one thing wherever it stands, so an airport, a city and a county of
  the same name would share their facts; the world holds no such names.

What is merely likely is no leak: a neighbour of an Asian country can be a guess at its continent, and an LM may guess.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property

from askwell.facts import Fact

SYMMETRIC = "neighbour"
INSIDE = ("country_of_city", "country_of_region", "country_of_airport", "state_of_county", "continent")
"""Relations that say that x is in y."""
HOLDS = "capital"
"""The relation that says that y is in x."""


class Withheld:
    """Withheld facts, ready to be looked for in sentences of words between single spaces."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        self.facts = frozenset(facts)

    @cached_property
    def _ys(self) -> Mapping[str, frozenset[str]]:
        ys: dict[str, set[str]] = {}
        for fact in self.facts:
            ys.setdefault(fact.x, set()).add(fact.y)
        return {x: frozenset(those) for x, those in ys.items()}

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(name for fact in self.facts for name in (fact.x, fact.y))

    @cached_property
    def _longest(self) -> int:
        return max((name.count(" ") + 1 for name in self._names), default=0)

    def leaks_of(self, sentence: str) -> list[Fact]:
        """The withheld facts whose x and y both stand in the sentence."""
        words = sentence.split(" ")
        stretches = (
            " ".join(words[start:end])
            for start in range(len(words))
            for end in range(start + 1, min(start + self._longest, len(words)) + 1)
        )
        found = self._names.intersection(stretches)
        return [Fact(x, y) for x in sorted(found & self._ys.keys()) for y in sorted(found & self._ys[x])]


def entailed(told: Mapping[str, Iterable[Fact]]) -> dict[str, frozenset[Fact]]:
    """For each relation under a rule, all facts that follow from the told ones, the told ones among them."""
    above: dict[str, set[str]] = {}
    for relation in INSIDE:
        for fact in told.get(relation, ()):
            above.setdefault(fact.x, set()).add(fact.y)
    for fact in told.get(HOLDS, ()):
        above.setdefault(fact.y, set()).add(fact.x)
    inside = frozenset(Fact(name, place) for name in above for place in _reachable(above, name))
    neighbours = frozenset(told.get(SYMMETRIC, ()))
    return {
        SYMMETRIC: neighbours | {_turned(fact) for fact in neighbours},
        HOLDS: frozenset(map(_turned, inside)),
        **dict.fromkeys(INSIDE, inside),
    }


def _turned(fact: Fact) -> Fact:
    return Fact(fact.y, fact.x)


def _reachable(above: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = above.get(waiting.pop(), set()) - seen
        seen |= new
        waiting += new
    return seen
