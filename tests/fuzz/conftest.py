"""Whole files of every kind, made once."""

import pytest
from builders.once import once
from fuzz.kinds import World, make_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(once(tmp_path_factory, "fuzz", make_world))
