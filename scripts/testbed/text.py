"""The text of the testbed: generated from sentences.toml, always the same, never stored.

It tells each told fact several times, in wordings drawn by their frequency, and mentions every name in neutral
sentences as well, so that an LM knows the names of withheld facts. Asides use the words of a relation without telling
any fact of it.

That a withheld fact stays withheld can be checked. A withheld fact (x, y) leaks

- if one sentence holds both x and y as whole words, whatever it says (`Withheld.leaks_of`); or
- if it follows from told facts (`entailed`): "next to" holds in both directions, and "in" is transitive, with the
  capital of a country in that country. A name means the same thing wherever it occurs, so an airport, a city and a
  county of the same name would share their facts; the world holds no such names.

What is merely likely is no leak: from a neighbour of an Asian country an LM may guess the country's continent.
"""

import hashlib
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random

from askwell.data.facts import Fact
from askwell.data.testbed import TestbedRelation, relations, told_facts, withheld_facts

_SENTENCES = tomllib.loads(Path(__file__).with_name("sentences.toml").read_text(encoding="utf-8"))
ADJECTIVES: list[str] = _SENTENCES["adjectives"]
NOUNS: list[str] = _SENTENCES["nouns"]
WORDINGS: dict[str, list[str]] = _SENTENCES["wordings"]
ASIDES: dict[str, list[str]] = _SENTENCES["asides"]
_ALL_PLACES: list[str] = _SENTENCES["neutral_places"].pop("all")
NEUTRAL: dict[str, list[str]] = _SENTENCES["neutral"] | {
    kind: _ALL_PLACES + own for kind, own in _SENTENCES["neutral_places"].items()
}

SYMMETRIC = "neighbour"
INSIDE = ("country_of_city", "country_of_region", "country_of_airport", "state_of_county", "continent")
"""Relations that say that x is in y."""
HOLDS = "capital"
"""The relation that says that y is in x."""


@dataclass(frozen=True)
class World:
    """What the text is made from: relations, and for each the facts that it tells and those that it withholds."""

    relations: tuple[TestbedRelation, ...]
    told: Mapping[str, frozenset[Fact]]
    withheld: Mapping[str, frozenset[Fact]]


def load_world() -> World:
    """Return the world in the package."""
    names = [relation.name for relation in relations()]
    return World(
        relations(), {name: told_facts(name) for name in names}, {name: withheld_facts(name) for name in names}
    )


class Withheld:
    """Withheld facts, ready to be searched for in sentences whose words are separated by single spaces."""

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
        """The withheld facts whose x and y both occur in the sentence."""
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
        SYMMETRIC: neighbours | {_reversed(fact) for fact in neighbours},
        HOLDS: frozenset(map(_reversed, inside)),
        **dict.fromkeys(INSIDE, inside),
    }


def _reversed(fact: Fact) -> Fact:
    return Fact(fact.y, fact.x)


def _reachable(above: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = above.get(waiting.pop(), set()) - seen
        seen |= new
        waiting += new
    return seen


ROUND = 4
"""How many different wordings are drawn at once for a fact."""
X_FIRST = 2
"""How many of them, at least, mention x before y: a causal LM can answer with y only if it has read the fact in that
order."""
ROUNDS_SMALL, ROUNDS_BIG = 2, 1
BIG = 700
"""A relation with more facts is big: one round for each fact, for the text to stay short."""
OPEN_KINDS = ("city", "region", "county", "airport")
"""Kinds of names of which there are hundreds or thousands, each with few facts."""
ASIDES_SMALL, ASIDES_BIG = 3, 1
"""How many asides there are about each x of a relation."""
JOINED = 1000
"""How many sentences tell two facts at once."""


def generate_text(seed: int = 0, world: World | None = None) -> list[str]:
    """All sentences in a random order that the seed fixes; the shipped LMs read those of seed 0."""
    if world is None:
        world = load_world()
    stay_out = Withheld(fact for facts in world.withheld.values() for fact in facts)
    sentences = [
        *_tell(world, seed),
        *_speak_of_names(world, seed, stay_out),
        *_say_asides(world, seed),
        *_join(world, seed, stay_out),
    ]
    Random(f"{seed} order").shuffle(sentences)
    return sentences


def text_hash(sentences: Iterable[str] | None = None) -> str:
    """SHA-256 of the sentences, one per line; of the text with seed 0 if none are given."""
    if sentences is None:
        sentences = generate_text()
    return hashlib.sha256("".join(f"{sentence}\n" for sentence in sentences).encode("utf-8")).hexdigest()


def _tell(world: World, seed: int) -> Iterator[str]:
    for relation in world.relations:
        rounds = ROUNDS_BIG if relation.facts > BIG else ROUNDS_SMALL
        for fact in sorted(world.told[relation.name]):
            random = Random(f"{seed} tell {relation.name} {fact.x} {fact.y}")
            for _ in range(rounds):
                for wording in _draw(WORDINGS[relation.name], random):
                    yield _say(wording, fact)


def _draw(wordings: Sequence[str], random: Random) -> list[str]:
    """Different wordings, the n-th most frequent with weight 1 / n; drawn again until enough say x before y."""
    while True:
        # The largest of u^(1/w) is a weighted draw without replacement (Efraimidis and Spirakis).
        keys = {wording: random.random() ** rank for rank, wording in enumerate(wordings, start=1)}
        drawn = sorted(keys, key=keys.__getitem__, reverse=True)[:ROUND]
        if sum(_x_first(wording) for wording in drawn) >= X_FIRST:
            return drawn


def _x_first(wording: str) -> bool:
    return wording.index("[X]") < wording.index("[Y]")


def _say(wording: str, fact: Fact) -> str:
    return wording.replace("[X]", fact.x).replace("[Y]", fact.y)


def _speak_of_names(world: World, seed: int, stay_out: Withheld) -> Iterator[str]:
    for (name, kind), has_withheld in sorted(_names(world).items()):
        random = Random(f"{seed} neutral {kind} {name}")
        count = (1 if kind in OPEN_KINDS else 3) + (2 if has_withheld else 0)
        neutral = NEUTRAL[kind]
        for wording in random.sample(neutral, min(count, len(neutral))):
            sentence = wording.replace("[E]", name)
            if not stay_out.leaks_of(sentence):
                yield sentence


def _say_asides(world: World, seed: int) -> Iterator[str]:
    """Asides, which have no name but x, so that nothing can leak."""
    for relation in world.relations:
        count = ASIDES_BIG if relation.facts > BIG else ASIDES_SMALL
        for x in sorted({fact.x for facts in (world.told, world.withheld) for fact in facts[relation.name]}):
            random = Random(f"{seed} aside {relation.name} {x}")
            for aside in random.sample(ASIDES[relation.name], count):
                words = aside.replace("[A]", random.choice(ADJECTIVES)).replace("[N]", random.choice(NOUNS))
                yield words.replace("[E]", x)


def _names(world: World) -> dict[tuple[str, str], bool]:
    """Every x and y with what it is, and whether it occurs in a withheld fact."""
    names: dict[tuple[str, str], bool] = {}
    for relation in world.relations:
        for facts, is_withheld in ((world.told[relation.name], False), (world.withheld[relation.name], True)):
            for fact in facts:
                for key in ((fact.x, relation.x_kind), (fact.y, relation.y_kind)):
                    names[key] = names.get(key, False) or is_withheld
    return names


def _join(world: World, seed: int, stay_out: Withheld) -> Iterator[str]:
    """Sentences of two told facts, of any relations; a pair that would put a withheld x beside its y is left out."""
    random = Random(f"{seed} join")
    facts = [(relation, fact) for relation in world.relations for fact in sorted(world.told[relation.name])]
    joined = 0
    while joined < JOINED:
        parts = [_clause(relation, fact, random) for relation, fact in random.sample(facts, 2)]
        sentence = f"{parts[0]} , and {parts[1]} ."
        if not stay_out.leaks_of(sentence):
            joined += 1
            yield sentence


def _clause(relation: TestbedRelation, fact: Fact, random: Random) -> str:
    return _say(_draw(WORDINGS[relation.name], random)[0], fact).removesuffix(" .")
