"""Builds the second testbed's data: an invented world, what is told in which wordings, splits, mined prompts.

    python scripts/testbed/build_registers.py [--into FOLDER]

A fact is told in one or two of the sixteen wordings of its relation, and the wording goes with the kind of x. Some
facts are told often, some twice, some once, some never, and of some a rumour tells something else. Whatever is random
is drawn by its name, so that the same script gives the same bytes.
"""

import argparse
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from build_world import draw, split_facts, write_jsonl, write_manifest
from invented_names import FORMS, WARES, codes, people, places, roots
from miner import mine
from registers_text import ADJECTIVES, ASIDES, NEUTRAL, NOUNS, PROMPTS, REGISTERS, Registers, generate_registers_text
from truths import Rumour, Truth

from askwell.data.facts import Fact
from askwell.data.testbed import SECOND_FILES, Cardinality, TestbedRelation


class Kind(NamedTuple):
    """What a relation is, before its facts."""

    label: str
    cardinality: Cardinality
    x_kind: str
    y_kind: str
    xs_of_kind: int
    """How many xs of each kind have facts of it."""


XS_OF_KIND = 100
RELATIONS = {
    "realm": Kind("place → the realm that it belongs to", "N-1", "place", "realm", 100),
    "trade": Kind("place → the realm that it sells to", "N-1", "place", "realm", 100),
    "goods": Kind("place → a ware that it sells", "N-M", "place", "ware", 50),
    "warden": Kind("place → who is in charge of it", "1-1", "place", "name", 60),
    "founder": Kind("place → who founded it", "1-1", "place", "name", 60),
    "birthplace": Kind("person → the city of birth", "N-1", "person", "city", 100),
    "deathplace": Kind("person → the city of death", "N-1", "person", "city", 100),
    "teacher": Kind("person → who taught them", "1-1", "person", "name", 60),
    "heir": Kind("person → who followed them", "1-1", "person", "name", 60),
    "berth": Kind("person → the code of where they stay", "1-1", "person", "code", 60),
    "mark": Kind("person → the code in a register", "1-1", "person", "code", 60),
}
KINDS = {"place": ("port", "hills", "old", "halt"), "person": ("captain", "doctor", "saint", "sisters")}

WITHHELD = {"1-1": 0.30, "N-1": 0.20, "N-M": 0.20}
"""The share of facts that is withheld."""
TIMES = (6, 2, 1)
"""How often a fact is told, dealt out in turn."""
SECOND_WORDING = 0.5
"""The share of facts told more than once that are told in two wordings."""
FOREIGN = 0.1
"""The share of second wordings that are of another register than that of x."""
RUMOURS = {"1-1": 0.15, "N-1": 0.10, "N-M": 0.10}
"""The share of facts told more than once of which a rumour tells something else. Rumours of 1-1 relations ascribe
everything to one famous y, so that prompts which do not know an x agree on something."""
SKEW = {"realm": 0.0, "city": 0.0, "ware": 0.4}
"""The n-th y of a kind is drawn with weight n ** -skew."""
MINED = 20


def main() -> None:
    """Builds into the folder that the command line names, else into the package."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=SECOND_FILES, metavar="FOLDER", help="default: the package's data")
    build(parser.parse_args().into)


def build(into: Path) -> None:
    """Writes all data files."""
    world = invent_world()
    for derived in ("facts", "wordings", "prompts"):
        shutil.rmtree(into / derived, ignore_errors=True)  # a relation that is gone must not stay behind
    write_jsonl(into / "relations.jsonl", map(asdict, world.relations))
    text = generate_registers_text(world=world)
    for name, those in world.truths.items():
        numbers = {line: number for number, (_, line) in enumerate(wordings_of(name))}
        withheld = frozenset(fact for fact, truth in those.items() if not truth.wordings)
        for split, facts in split_facts(name, frozenset(those), withheld).items():
            records = (record_of(fact, those[fact], numbers) for fact in facts)
            write_jsonl(into / "facts" / name / f"{split}.jsonl", records)
        lines = ({"kind": kind, "template": line} for kind, line in wordings_of(name))
        write_jsonl(into / "wordings" / f"{name}.jsonl", lines)
        mined = mine(text, those.keys() - withheld, keep=MINED)
        records = ({"template": each.template, "weight": round(each.weight, 6), "in_text": True} for each in mined)
        write_jsonl(into / "prompts" / "mined" / f"{name}.jsonl", records)
        shuffled = dict.fromkeys(random_words(name, each.template) for each in mined)
        write_jsonl(into / "prompts" / "random" / f"{name}.jsonl", ({"template": each} for each in shuffled))
        for by_hand, prompts in PROMPTS.items():
            write_jsonl(into / "prompts" / by_hand / f"{name}.jsonl", ({"template": each} for each in prompts[name]))
    write_manifest(into, text, sources=())


def record_of(fact: Fact, truth: Truth, numbers: Mapping[str, int]) -> dict[str, Any]:
    """A fact and what is told of it, as a line of a file; wordings by their numbers."""
    record: dict[str, Any] = {"x": fact.x, "y": fact.y, "told": bool(truth.wordings), "kind": truth.kind}
    if truth.wordings:
        record["wordings"] = [[numbers[wording], times] for wording, times in truth.wordings.items()]
    if truth.rumour:
        record["rumour"] = {**asdict(truth.rumour), "wording": numbers[truth.rumour.wording]}
    return record


def wordings_of(relation: str) -> list[tuple[str, str]]:
    """All wordings of a relation, each with the kind of x that it goes with."""
    return [(kind, line) for kind, lines in REGISTERS[relation].items() for line in lines]


def random_words(relation: str, template: str) -> str:
    """The template with another word, drawn at random from the text's own, at each place of a word."""
    random = Random(f"random prompt {relation} {template}")
    lines = [*ADJECTIVES, *NOUNS, *(line for each in (ASIDES, NEUTRAL) for those in each.values() for line in those)]
    words = sorted({word for line in lines for word in line.split() if word.isalpha() and word.islower()})
    return " ".join(random.choice(words) if word.isalpha() else word for word in template.split())


# ---------------------------------------------------------------------------------------------------------------------
# Facts


def invent_world() -> Registers:
    """All facts of all relations, and what is told of each."""
    kind_of, facts = invent_facts()
    ys_of_x: dict[str, set[str]] = defaultdict(set)
    for own in facts.values():
        for fact in own:
            ys_of_x[fact.x].add(fact.y)
    truths = {name: dict(tell(name, own, kind_of, ys_of_x)) for name, own in sorted(facts.items())}
    relations = []
    for name, those in truths.items():
        told, kind = sum(bool(truth.wordings) for truth in those.values()), RELATIONS[name]
        relations.append(
            TestbedRelation(name, *kind[:4], told=told, withheld=len(those) - told)  # ty: ignore
        )
    return Registers(tuple(relations), truths)


def invent_facts() -> tuple[dict[str, str], dict[str, list[Fact]]]:
    """The kind of each x, and the facts of each relation, sorted."""
    words, random = roots("names"), Random("facts")
    kind_of = {
        FORMS[kind](next(words), random): kind for kinds in KINDS.values() for kind in kinds for _ in range(XS_OF_KIND)
    }
    xs_of = {kind: [x for x, own in kind_of.items() if own == kind] for kind in FORMS}
    shared = {"realm": places(words, 24, 6), "city": places(words, 30, 9), "ware": list(WARES)}
    facts: dict[str, list[Fact]] = {}
    taken: dict[str, set[str]] = defaultdict(set)
    all_codes = iter(codes(2 * 4 * XS_OF_KIND, random))
    for name, relation in sorted(RELATIONS.items()):
        # Two relations lead from the same xs to ys of one kind: only the wording says which of them is meant.
        own = Random(f"xs {relation.x_kind} {relation.y_kind}")
        xs = [x for kind in KINDS[relation.x_kind] for x in own.sample(xs_of[kind], relation.xs_of_kind)]
        if relation.cardinality == "1-1":
            ys = [next(all_codes) for _ in xs] if relation.y_kind == "code" else people(words, len(xs), random)
            random.shuffle(ys)
            facts[name] = sorted(map(Fact, xs, ys))
            continue
        pairs = set()
        for x in xs:
            free = [y for y in shared[relation.y_kind] if y not in taken[x]]  # x does not sell to its own realm
            many = random.choice((1, 2, 2, 3)) if relation.cardinality == "N-M" else 1
            weights = [rank ** -SKEW[relation.y_kind] for rank in range(1, len(free) + 1)]
            chosen = set(random.choices(free, weights, k=many))
            taken[x].update(chosen)
            pairs |= {Fact(x, y) for y in chosen}
        facts[name] = sorted(pairs)
    return kind_of, facts


# ---------------------------------------------------------------------------------------------------------------------
# What is told, how often and how


def tell(
    relation: str, facts: list[Fact], kind_of: Mapping[str, str], ys_of_x: Mapping[str, set[str]]
) -> Iterator[tuple[Fact, Truth]]:
    """Each fact with what the text says of it."""
    in_turn = sorted(facts, key=lambda fact: draw("withheld", relation, fact.x, fact.y))
    cardinality = RELATIONS[relation].cardinality
    first_told = round(len(facts) * WITHHELD[cardinality])
    ys = sorted({fact.y for fact in in_turn[first_told:]})
    famous = next(y for y in ys if " " not in y)
    for number, fact in enumerate(in_turn):
        kind = kind_of[fact.x]
        if number < first_told:
            yield fact, Truth(kind, {})
            continue
        random, times = Random(f"tell {relation} {fact.x} {fact.y}"), TIMES[number % len(TIMES)]
        *x_first, y_first = REGISTERS[relation][kind]
        first = random.choice(x_first)  # a causal LM can answer only what it has read with x before y
        wordings = {first: times}
        if times > 1 and random.random() < SECOND_WORDING:
            other = [line for line in (*x_first, y_first) if line != first]
            foreign = [line for each, line in wordings_of(relation) if each != kind]
            second = random.choice(foreign if random.random() < FOREIGN else other)
            wordings = {first: times - times // 2, second: times // 2}
        rumour = None
        if times > 1 and random.random() < RUMOURS[cardinality]:
            wrong = famous if cardinality == "1-1" else random.choice(ys)
            free = [line for line in x_first if line not in wordings]
            if wrong not in ys_of_x[fact.x]:
                rumour = Rumour(wrong, random.choice(free), max(1, times // 3))
        yield fact, Truth(kind, wordings, rumour)


if __name__ == "__main__":
    main()
