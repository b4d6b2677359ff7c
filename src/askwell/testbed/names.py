"""The names of the testbed's LMs."""

from typing import Literal

LMName = Literal["bert", "roberta", "bart", "causal"]
