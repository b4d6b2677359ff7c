"""The families of LMs that askwell can ask, in the order in which a config is held against them."""

from askwell.lms.families.causal import Causal
from askwell.lms.families.family import Family
from askwell.lms.families.masked import Masked
from askwell.lms.families.seq2seq import Seq2Seq

FAMILIES: tuple[Family, ...] = (Seq2Seq(), Masked(), Causal())

__all__ = ["FAMILIES", "Family"]
