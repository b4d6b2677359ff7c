"""The LMs of the testbed, loaded once for all tests. No test may change one."""

from functools import cache

from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm


@cache
def load_testbed_lm(name: str) -> FrozenLM:
    return load_lm(name if ":" in name else f"testbed:{name}", device="cpu")
