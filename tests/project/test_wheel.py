"""The built package contains what belongs to it, and is small in spite of the testbeds' LMs."""

import ast
import re
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from askwell.data.testbed import PREFIXES, lm_names, relation_names

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return Path(next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")))))


def test_the_wheel_stays_under_20_megabytes(wheel):
    assert wheel.stat().st_size < 20_000_000


def test_the_wheel_holds_the_testbed_and_no_tests(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for prefix in PREFIXES:
        data = f"askwell/data/{prefix.removesuffix(':')}_files"
        for lm in lm_names(prefix):
            files = ("config.json", "model.safetensors", "tokenizer.json")
            assert {f"{data}/lms/{lm}/{file}" for file in files} <= names
        for relation in relation_names(prefix):
            assert {f"{data}/facts/{relation}/{split}.jsonl" for split in ("train", "dev", "test")} <= names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "studies/"))]
    assert not [name for name in names if "__pycache__" in name]
    templates = {path.name for path in (ROOT / "src" / "askwell").rglob("*.html*")}
    assert templates <= {Path(name).name for name in names}


def test_nothing_that_is_no_dependency_is_imported_at_the_top(wheel):
    """So that every command starts in an environment with the package alone."""
    files = zipfile.ZipFile(wheel)
    (metadata,) = [name for name in files.namelist() if name.endswith("/METADATA")]
    needed = re.findall(r"^Requires-Dist: ([\w.-]+)(?!.*extra ==)", files.read(metadata).decode(), re.M)
    parts = {"markupsafe", "starlette"}  # of jinja2 and fastapi
    known = {"askwell", *parts, *sys.stdlib_module_names, *(name.lower().replace("-", "_") for name in needed)}
    for name in files.namelist():
        if not name.endswith(".py"):
            continue
        for node in ast.parse(files.read(name)).body:
            modules = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {module.partition(".")[0] for module in modules} <= known, name
