"""Dev scores: what a prompt makes of the dev facts, and which of several scores is the best."""

import math
from collections.abc import Sequence
from typing import Any

from askwell.data.facts import Relation
from askwell.errors import NothingLeft
from askwell.mixture.encode import EncodedFacts, LeftOutFact, count_reasons, encode_facts
from askwell.mixture.mixture import Mixture


def badness(scores: dict[str, Any]) -> tuple[float, float]:
    """A key that sorts the better scores first: by P@1, then by log-loss."""
    return -scores["P@1"], math.inf if scores["log_loss"] is None else scores["log_loss"]


def encode_splits(
    mixture: Mixture, relation: Relation, splits: Sequence[str]
) -> tuple[list[EncodedFacts], dict[str, tuple[LeftOutFact, ...]]]:
    """The facts of each split that can be asked, and those that cannot; a split without any is an error."""
    encoded, left_out = [], {}
    for split in splits:
        facts, without = encode_facts(mixture, relation.split(split))
        if not len(facts):
            raise NothingLeft(f"{split} facts of {relation.name}", count_reasons(without))
        encoded.append(facts)
        left_out[split] = tuple(without)
    return encoded, left_out
