"""A small world of facts, prompts and LMs in a folder, and sweeps over it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import tiny
from builders.sweeps import World
from builders.worlds import PAIRS, TEMPLATES, write_prompts, write_relation


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> World:
    folder = tmp_path_factory.mktemp("world")
    for name in ("bert", "llama"):
        tiny.save(*tiny.TINY[name](), folder / name)
    for name, pairs in {"capital": PAIRS, "other": PAIRS[::-1]}.items():
        facts = folder / "data" / "facts" / "places" / name
        write_relation(facts, train=pairs[:6], dev=pairs[6:8], test=pairs[6:])
        for prompts, templates in {"hand": TEMPLATES[:1], "many": TEMPLATES}.items():
            write_prompts(folder / "data" / "prompts" / prompts / f"{name}.jsonl", templates)
    return World(folder)


@pytest.fixture
def write_sweep(world, tmp_path) -> Callable[..., Path]:
    """Writes a sweep over the world, with some keys changed; None leaves a key out."""

    def write(**changed: Any) -> Path:
        return world.write_sweep(tmp_path, **changed)

    return write
