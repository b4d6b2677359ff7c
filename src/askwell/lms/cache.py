"""LMs that are no hub names and no paths: the testbed's, and those that `askwell lm pull` has put into the cache."""

from pathlib import Path

from askwell.cache_folder import cache_folder
from askwell.errors import LMUnavailable
from askwell.testbed.lms import lm_folder
from askwell.testbed.world import PREFIX

PULLABLE = ("smollm2",)


def pulled_folder(name: str) -> Path:
    """The checkpoint folder of an LM that can be pulled, whether it is there or not."""
    return cache_folder() / "lms" / name


def built_in_folder(name: str) -> Path | None:
    """The checkpoint folder of an LM that askwell knows by itself, None for all other names."""
    if name.startswith(PREFIX):
        return lm_folder(name)
    if name not in PULLABLE:
        return None
    folder = pulled_folder(name)
    if not (folder / "config.json").exists():
        raise LMUnavailable(f"--lm {name} is not here yet; get it once with: askwell lm pull {name}")
    return folder
