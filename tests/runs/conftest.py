"""A small world of facts, prompts and LMs in a folder, and sweeps over it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
from stores import World
from worlds import PAIRS, TEMPLATES


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> World:
    folder = tmp_path_factory.mktemp("world")
    for name in ("bert", "llama"):
        tiny.save(*tiny.TINY[name](), folder / name)
    for name, pairs in {"capital": PAIRS, "other": PAIRS[::-1]}.items():
        facts = folder / "data" / "facts" / "places" / name
        facts.mkdir(parents=True)
        for split, some in {"train": pairs[:6], "dev": pairs[6:8], "test": pairs[6:]}.items():
            (facts / f"{split}.jsonl").write_text("".join(json.dumps({"x": x, "y": y}) + "\n" for x, y in some))
        for prompts, templates in {"hand": TEMPLATES[:1], "many": TEMPLATES}.items():
            path = folder / "data" / "prompts" / prompts / f"{name}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps({"template": template}) + "\n" for template in templates))
    return World(folder)


@pytest.fixture
def write_sweep(world, tmp_path) -> Callable[..., Path]:
    """Writes a sweep over the world, with some keys changed; None leaves a key out."""

    def write(**changed: Any) -> Path:
        return world.write_sweep(tmp_path, **changed)

    return write
