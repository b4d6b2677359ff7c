"""The two packaged testbeds: their relations with told and withheld facts, their prompts and their LMs.

The text of the first tells every told fact in many wordings. That of the second tells a fact in one or two of sixteen,
which go with the kind of x, so that no single prompt finds all; what it tells of each fact is in the files of facts
(`scripts/testbed/truths.py` reads it). A name begins with the prefix of its testbed; a bare name is of the first.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from askwell.data.facts import SPLITS, Fact, Relation
from askwell.data.templates import Template, parse_template
from askwell.errors import BadOption, LMUnavailable, did_you_mean

LMName = Literal["bert", "roberta", "bart", "causal"]

PREFIX = "testbed:"
SECOND = "testbed2:"
PREFIXES = (PREFIX, SECOND)

FILES = Path(__file__).with_name("testbed_files")
"""Facts, prompts and LMs, as scripts/testbed has made them."""
SECOND_FILES = Path(__file__).with_name("testbed2_files")

_FOLDERS = {PREFIX: FILES, SECOND: SECOND_FILES}
_LMS: dict[str, tuple[LMName, ...]] = {PREFIX: get_args(LMName), SECOND: ("bert", "causal")}
_CHANGED: dict[str, tuple[str, ...]] = {PREFIX: ("causal-unlearned", "causal-finetuned"), SECOND: ()}
FORGOTTEN = "forgotten.jsonl"
"""The file of an unlearned LM with the facts that it was made to forget."""

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


def testbed_listing() -> list[dict[str, Any]]:
    """Return the relations of both testbeds, named as for --facts, with how many prompts of each kind they have."""
    return [
        {
            "name": prefix + one.name,
            "label": one.label,
            "cardinality": one.cardinality,
            "told": one.told,
            "withheld": one.withheld,
            "prompts": {kind: len(testbed_prompts(kind, prefix + one.name)) for kind in get_args(PromptKind)},
        }
        for prefix in PREFIXES
        for one in relations(prefix)
    ]


@cache
def relations(prefix: str = PREFIX) -> tuple[TestbedRelation, ...]:
    """Return all relations of a testbed, sorted by name."""
    return tuple(TestbedRelation(**record) for record in _records(prefix, "relations.jsonl"))


def relation_names(prefix: str = PREFIX) -> list[str]:
    """Return the names of all relations of a testbed, without its prefix."""
    return [relation.name for relation in relations(prefix)]


@cache
def testbed_relation(name: str) -> Relation:
    """Return the facts of a relation with its splits, named testbed:<name>."""
    prefix, bare = _known(name)
    train, dev, test = ([_fact(record) for record in _facts(prefix, bare, split)] for split in SPLITS)
    return Relation.of(prefix + bare, train, dev, test)


@cache
def told_facts(name: str) -> frozenset[Fact]:
    """Return the facts of a relation that the text tells, over all splits; the others are withheld."""
    records = (record for split in SPLITS for record in _facts(*_known(name), split))
    return frozenset(_fact(record) for record in records if record["told"])


def is_told(relation: str, x: str, y: str) -> bool:
    """Tell whether the text tells a fact of a relation."""
    return Fact(x, y) in told_facts(relation)


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
    prefix, bare = _known(relation)
    records = _records(prefix, "prompts", kind, f"{bare}.jsonl")
    return [parse_template(record["template"], record.get("weight")) for record in records]


def _fact(record: Mapping[str, Any]) -> Fact:
    return Fact(record["x"], record["y"])


def _facts(prefix: str, name: str, split: str) -> list[dict[str, Any]]:
    return _records(prefix, "facts", name, f"{split}.jsonl")


def _records(prefix: str, *path: str) -> list[dict[str, Any]]:
    text = _FOLDERS[prefix].joinpath(*path).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _known(name: str) -> tuple[str, str]:
    """Return the prefix and the bare name of a relation that there is."""
    prefix, bare = prefix_and_name(name)
    names = relation_names(prefix)
    if bare not in names:
        raise BadOption(f"there is no relation {bare!r} in the testbed{did_you_mean(bare, names)}")
    return prefix, bare


def prefix_and_name(name: str) -> tuple[str, str]:
    """Return the prefix of the testbed that a name belongs to, and the rest of the name."""
    prefix = next((each for each in PREFIXES if name.startswith(each)), PREFIX)
    return prefix, name.removeprefix(prefix)


def lm_names(prefix: str = PREFIX) -> tuple[LMName, ...]:
    """Return the names of the LMs that were trained on a testbed's text, without its prefix."""
    return _LMS[prefix]


def all_lms() -> tuple[str, ...]:
    """Return the full names of all LMs of the testbeds, those that were changed after training last."""
    return tuple(prefix + name for lms in (_LMS, _CHANGED) for prefix in PREFIXES for name in lms[prefix])


@cache
def forgotten_facts(lm: str) -> frozenset[Fact]:
    """Return the facts that an LM of a testbed was made to forget; none for all others."""
    prefix, bare = prefix_and_name(lm)
    if bare not in _CHANGED[prefix] or not (lm_folder(lm) / FORGOTTEN).is_file():
        return frozenset()
    return frozenset(Fact(record["sub"], record["obj"]) for record in _records(prefix, "lms", bare, FORGOTTEN))


def lms_folder(prefix: str = PREFIX) -> Path:
    """Return the folder in the package that holds the LMs of a testbed."""
    return _FOLDERS[prefix] / "lms"


def lm_folder(name: str) -> Path:
    """Return the checkpoint folder of an LM of a testbed."""
    prefix, bare = prefix_and_name(name)
    names = (*lm_names(prefix), *_CHANGED[prefix])
    if bare not in names:
        raise LMUnavailable(
            f"there is no LM {bare!r} in the testbed{did_you_mean(bare, names)} (`askwell lm list` shows all LMs)"
        )
    folder = lms_folder(prefix) / bare
    if not (folder / "config.json").exists():
        raise LMUnavailable(f"{prefix}{bare} is not in this installation of askwell; install it again")
    return folder
