"""The text of the second testbed: generated from registers.toml, always the same, never stored.

Every sentence that tells a fact is one of the sixteen wordings of its relation, and which one goes with the kind of x.
All names stand in neutral sentences as well, and asides use the words that people ask with without telling anything,
as in the first text. A withheld fact leaks if one sentence holds both of its names (`text.Withheld`); nothing follows
from told facts, since no relation leads from what is a y to another y.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from text import Withheld
from truths import Truth, truths

from askwell.data.facts import Fact
from askwell.data.testbed import SECOND, TestbedRelation, relations

_SENTENCES = tomllib.loads(Path(__file__).with_name("registers.toml").read_text(encoding="utf-8"))
ADJECTIVES: list[str] = _SENTENCES["adjectives"]
NOUNS: list[str] = _SENTENCES["nouns"]
REGISTERS: dict[str, dict[str, list[str]]] = _SENTENCES["wordings"]
"""The wordings of each relation, by the kind of x."""
ASIDES: dict[str, list[str]] = _SENTENCES["asides"]
NEUTRAL: dict[str, list[str]] = _SENTENCES["neutral"]
PROMPTS: dict[str, dict[str, list[str]]] = {
    "single": {name: [line] for name, line in _SENTENCES["single"].items()},
    "paraphrased": _SENTENCES["paraphrased"],
}
"""Prompts written by hand."""

NEUTRAL_TOLD, NEUTRAL_WITHHELD = 2, 3
"""How many neutral sentences there are on a name: of told facts only, or of a withheld one."""
ASIDES_OF_X = 1
"""How many asides there are about each x of a relation."""


@dataclass(frozen=True)
class Registers:
    """What the text is made from: relations, and for each what is told of its facts."""

    relations: tuple[TestbedRelation, ...]
    truths: Mapping[str, Mapping[Fact, Truth]]

    @property
    def withheld(self) -> frozenset[Fact]:
        """Return the facts of all relations that are not told."""
        return frozenset(fact for those in self.truths.values() for fact, truth in those.items() if not truth.wordings)


def load_registers() -> Registers:
    """Return the second testbed's world in the package."""
    return Registers(relations(SECOND), {one.name: truths(SECOND + one.name) for one in relations(SECOND)})


def generate_registers_text(seed: int = 0, world: Registers | None = None) -> list[str]:
    """Return all sentences in a random order that the seed fixes; the shipped LMs read those of seed 0."""
    world = world or load_registers()
    sentences = [*_tell(world), *_speak_of_names(world, seed), *_say_asides(world, seed)]
    Random(f"{seed} order").shuffle(sentences)
    return sentences


def _tell(world: Registers) -> Iterator[str]:
    for those in world.truths.values():
        for fact, truth in sorted(those.items(), key=lambda item: item[0]):
            for wording, times in truth.wordings.items():
                yield from [_say(wording, fact.x, fact.y)] * times
            if truth.rumour:
                yield from [_say(truth.rumour.wording, fact.x, truth.rumour.y)] * truth.rumour.times


def _say(wording: str, x: str, y: str) -> str:
    return wording.replace("[X]", x).replace("[Y]", y)


def _speak_of_names(world: Registers, seed: int) -> Iterator[str]:
    stay_out, names = Withheld(world.withheld), _names(world)
    for (name, kind), has_withheld in sorted(names.items()):
        random = Random(f"{seed} neutral {kind} {name}")
        for wording in random.sample(NEUTRAL[kind], NEUTRAL_WITHHELD if has_withheld else NEUTRAL_TOLD):
            sentence = wording.replace("[E]", name)
            if not stay_out.leaks_of(sentence):
                yield sentence


def _names(world: Registers) -> dict[tuple[str, str], bool]:
    """Every x and y with what it is, and whether it occurs in a withheld fact."""
    names: dict[tuple[str, str], bool] = {}
    for relation in world.relations:
        for fact, truth in world.truths[relation.name].items():
            for key in ((fact.x, truth.kind), (fact.y, relation.y_kind)):
                names[key] = names.get(key, False) or not truth.wordings
    return names


def _say_asides(world: Registers, seed: int) -> Iterator[str]:
    """Asides, which have no name but x, so that nothing can leak."""
    for relation in world.relations:
        for x in sorted({fact.x for fact in world.truths[relation.name]}):
            random = Random(f"{seed} aside {relation.name} {x}")
            for aside in random.sample(ASIDES[relation.name], ASIDES_OF_X):
                words = aside.replace("[A]", random.choice(ADJECTIVES)).replace("[N]", random.choice(NOUNS))
                yield words.replace("[E]", x)
