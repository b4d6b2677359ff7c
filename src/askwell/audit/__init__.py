"""What a split of facts hides: leaks, repeated facts, and what trivial answers score."""

from askwell.audit.audit import RelationAudit, SetAudit, audit_relation, audit_splits
from askwell.audit.clean import CleanSplit, clean_splits, write_clean
from askwell.audit.read import Splits, read_splits
from askwell.audit.sentences import sentences

__all__ = [
    "CleanSplit",
    "RelationAudit",
    "SetAudit",
    "Splits",
    "audit_relation",
    "audit_splits",
    "clean_splits",
    "read_splits",
    "sentences",
    "write_clean",
]
