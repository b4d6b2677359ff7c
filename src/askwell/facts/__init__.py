"""Facts (x, y) of a relation: read, split, counted."""

from askwell.facts.fact import Counts, Fact, Relation, SplitName
from askwell.facts.read import read_relation
from askwell.facts.split import SplitRule, split_facts

__all__ = ["Counts", "Fact", "Relation", "SplitName", "SplitRule", "read_relation", "split_facts"]
