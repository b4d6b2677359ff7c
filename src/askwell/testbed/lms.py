"""The testbed's LMs, as they lie in the package."""

import difflib
from importlib.resources import files
from pathlib import Path
from typing import get_args

from askwell.errors import LMUnavailable
from askwell.testbed.names import LMName
from askwell.testbed.world import PREFIX


def lm_names() -> tuple[LMName, ...]:
    """The names of the testbed's LMs, without "testbed:"."""
    return get_args(LMName)


def lms_folder() -> Path:
    """The folder in the package that holds the LMs."""
    return Path(str(files("askwell.testbed").joinpath("data", "lms")))


def lm_folder(name: str) -> Path:
    """The checkpoint folder of an LM of the testbed."""
    bare = name.removeprefix(PREFIX)
    if bare not in lm_names():
        close = difflib.get_close_matches(bare, lm_names(), n=1)
        meant = f"; did you mean {PREFIX}{close[0]}?" if close else ""
        raise LMUnavailable(f"there is no LM {bare!r} in the testbed{meant} There are {', '.join(lm_names())}")
    folder = lms_folder() / bare
    if not (folder / "config.json").exists():
        raise LMUnavailable(f"{PREFIX}{bare} is not in this installation; make it with: askwell testbed train {bare}")
    return folder
