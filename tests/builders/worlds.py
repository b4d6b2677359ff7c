"""Small relations over the words that every tiny LM has."""

import json
from collections.abc import Sequence
from pathlib import Path

from askwell.data.facts import Fact, Relation
from askwell.lms.frozen import FrozenLM
from builders import tiny

PAIRS = [
    ("Paris", "France"),
    ("Rome", "Italy"),
    ("Lima", "Peru"),
    ("Oslo", "Norway"),
    ("Berlin", "Germany"),
    ("Vienna", "Austria"),
    ("Reykjavik", "Spain"),
    ("Boston", "Egypt"),
    ("Mary Cassatt", "Paris"),
    ("Massachusetts", "Norway"),
]
FACTS = [Fact(x, y) for x, y in PAIRS]
CAPITALS = Relation.of("capitals", FACTS, [Fact("Quito", "Peru"), Fact("Oslo", "Norway")], [Fact("Lima", "Peru")])
REPEATED = Relation.of("repeated", FACTS, FACTS, FACTS)
"""The same facts in each split."""
TEMPLATES = ["[X] lies in [Y] .", "the capital of [X] is [Y]", "[X] and [Y]"]


def frozen(name: str, dtype: str = "float32") -> FrozenLM:
    """A tiny LM in memory."""
    import torch

    model, tokenizer = tiny.TINY[name]()
    return FrozenLM(model.to(getattr(torch, dtype)), tokenizer, name=name)


def write_relation(folder: Path, **splits: Sequence[tuple[str, str]]) -> Path:
    """Makes the folder of a relation: a file for each split, with a line for each pair of x and y."""
    folder.mkdir(parents=True)
    for split, pairs in splits.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps({"sub": x, "obj": y}) + "\n" for x, y in pairs))
    return folder


def write_prompts(path: Path, templates: Sequence[str]) -> Path:
    """Makes a file of prompts, and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"template": template}) + "\n" for template in templates))
    return path
