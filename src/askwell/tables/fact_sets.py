"""The sets that relations belong to, by their names."""

import re

NO_SET = "own facts"
"""Relations that are not named as a part of a set."""
TESTBED, GOOGLE_RE, CONCEPTNET = "testbed", "google_re", "conceptnet"
# The names of the released folders, and the names of the paper's tables.
_PAPER_NAMES = {
    "trex_original": "trex_original",
    "trex_extend": "trex_extended",
    "trex_extended": "trex_extended",
    GOOGLE_RE: GOOGLE_RE,
    CONCEPTNET: CONCEPTNET,
}


def fact_set_of(relation: str) -> str:
    """The set of a relation: what stands before the ':' or '/' of its name."""
    first, *rest = re.split(r"[:/]", relation, maxsplit=1)
    return first if rest and first else NO_SET


def is_distinct_y(fact_set: str) -> bool:
    """Whether the set was split so that no y stands in two splits, as its name says."""
    return "distinct" in fact_set


def paper_name(fact_set: str) -> str | None:
    """The name of the set in the paper's tables; None if it is not there."""
    return _PAPER_NAMES.get(fact_set)
