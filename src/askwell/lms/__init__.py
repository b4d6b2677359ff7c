"""Frozen LMs: how they are loaded, how they write words, how they are asked."""

from askwell.lms.frozen import FrozenLM
from askwell.lms.identity import LMIdentity
from askwell.lms.load import load_lm

__all__ = ["FrozenLM", "LMIdentity", "load_lm"]
