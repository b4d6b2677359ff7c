import functools
from pathlib import Path

import pytest
from builders import tiny


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory):
    """The folder of each tiny LM's checkpoint, saved when it is first asked for. No test may change it."""
    root = tmp_path_factory.mktemp("checkpoints")

    @functools.cache
    def saved(name: str) -> Path:
        tiny.save(*tiny.TINY[name](), root / name)
        return root / name

    return saved
