"""Small relations over the words that every tiny LM has."""

import tiny

from askwell.data.facts import Fact, Relation
from askwell.lms.frozen import FrozenLM

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
TEMPLATES = ["[X] lies in [Y] .", "the capital of [X] is [Y]", "[X] and [Y]"]


def frozen(name: str, dtype: str = "float32") -> FrozenLM:
    """A tiny LM in memory."""
    import torch

    model, tokenizer = tiny.TINY[name]()
    return FrozenLM(model.to(getattr(torch, dtype)), tokenizer, name=name)
