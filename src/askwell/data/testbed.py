"""The packaged testbed: its relations with told and withheld facts, its prompts and its LMs."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from askwell.data.facts import SPLITS, Fact, Relation
from askwell.data.templates import Template, parse_template
from askwell.errors import BadOption, LMUnavailable, did_you_mean

LMName = Literal["bert", "roberta", "bart", "causal"]

PREFIX = "testbed:"

FILES = Path(__file__).with_name("testbed_files")
"""Facts, prompts and LMs, as scripts/testbed has made them."""

Cardinality = Literal["1-1", "N-1", "N-M"]
PromptKind = Literal["single", "paraphrased", "mined", "random"]


@dataclass(frozen=True)
class TestbedRelation:
    """What is known about a relation before its facts are read."""

    __test__ = False  # pytest takes every class named Test… for a class of tests

    name: str
    """As it is typed after "testbed:"."""
    label: str
    """What it says, for people."""
    cardinality: Cardinality
    x_kind: str
    """What an x is: a country, a city, …"""
    y_kind: str
    told: int
    """How many facts the text tells."""
    withheld: int

    @property
    def facts(self) -> int:
        """Return how many facts there are, told and withheld."""
        return self.told + self.withheld


@dataclass(frozen=True)
class ListedRelation:
    """A relation as it is listed."""

    name: str
    """Its name for --facts."""
    label: str
    cardinality: Cardinality
    told: int
    withheld: int
    prompts: dict[str, int]
    """How many prompts of each kind it has."""


@dataclass(frozen=True)
class Overview:
    """What the testbed has."""

    lms: tuple[str, ...]
    """Their names for --lm."""
    relations: tuple[ListedRelation, ...]


def testbed_overview() -> Overview:
    """Return the LMs and the relations, named as for --lm and --facts."""
    listed = (
        ListedRelation(
            name=PREFIX + one.name,
            label=one.label,
            cardinality=one.cardinality,
            told=one.told,
            withheld=one.withheld,
            prompts={kind: len(testbed_prompts(kind, one.name)) for kind in get_args(PromptKind)},
        )
        for one in relations()
    )
    return Overview(tuple(PREFIX + name for name in lm_names()), tuple(listed))


@cache
def relations() -> tuple[TestbedRelation, ...]:
    """Return all relations of the testbed, sorted by name."""
    return tuple(TestbedRelation(**record) for record in _records("relations.jsonl"))


def relation_names() -> list[str]:
    """Return the names of all relations, without "testbed:"."""
    return [relation.name for relation in relations()]


@cache
def testbed_relation(name: str) -> Relation:
    """Return the facts of a relation with its splits, named testbed:<name>."""
    name = _known(name)
    train, dev, test = ([fact for fact, _ in _facts(name, split)] for split in SPLITS)
    return Relation.of(PREFIX + name, train, dev, test)


@cache
def told_facts(name: str) -> frozenset[Fact]:
    """Return the facts of a relation that the text tells, over all splits; the others are withheld."""
    return frozenset(fact for split in SPLITS for fact, is_told in _facts(_known(name), split) if is_told)


@cache
def withheld_facts(name: str) -> frozenset[Fact]:
    """Return the facts of a relation that the text does not tell, over all splits."""
    return frozenset().union(*testbed_relation(name).splits.values()) - told_facts(name)


def testbed_prompts(kind: str, relation: str) -> list[Template]:
    """Return the prompts of one kind for a relation: single (manual), paraphrased, mined (with weights), or random
    words."""
    kinds = get_args(PromptKind)
    if kind not in kinds:
        raise BadOption(f"there are no {kind!r} prompts in the testbed{did_you_mean(kind, kinds)}")
    records = _records("prompts", kind, f"{_known(relation)}.jsonl")
    return [parse_template(record["template"], record.get("weight")) for record in records]


def _facts(name: str, split: str) -> list[tuple[Fact, bool]]:
    records = _records("facts", name, f"{split}.jsonl")
    return [(Fact(record["x"], record["y"]), record["told"]) for record in records]


def _records(*path: str) -> list[dict[str, Any]]:
    text = FILES.joinpath(*path).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _known(name: str) -> str:
    bare = name.removeprefix(PREFIX)
    if bare not in relation_names():
        raise BadOption(f"there is no relation {bare!r} in the testbed{did_you_mean(bare, relation_names())}")
    return bare


def lm_names() -> tuple[LMName, ...]:
    """Return the names of the testbed's LMs, without "testbed:"."""
    return get_args(LMName)


def lms_folder() -> Path:
    """Return the folder in the package that holds the LMs."""
    return FILES / "lms"


def lm_folder(name: str) -> Path:
    """Return the checkpoint folder of an LM of the testbed."""
    bare = name.removeprefix(PREFIX)
    if bare not in lm_names():
        raise LMUnavailable(
            f"there is no LM {bare!r} in the testbed{did_you_mean(bare, lm_names())} (`askwell lm list` shows all LMs)"
        )
    folder = lms_folder() / bare
    if not (folder / "config.json").exists():
        raise LMUnavailable(f"{PREFIX}{bare} is not in this installation of askwell; install it again")
    return folder
