"""The built package contains what belongs to it, is small in spite of the testbeds' LMs, and works where it is
installed."""

import ast
import os
import re
import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from askwell.data.testbed import PREFIXES, lm_names, relation_names

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    """The unpacked source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(next(SdistBuilder(str(ROOT)).build(directory=str(folder)))) as packed:
        packed.extractall(folder, filter="data")
    return next(folder.glob("askwell-*/"))


@pytest.fixture(scope="module")
def wheel(sdist) -> Path:
    """Made from the source distribution, as installing that does."""
    return Path(next(WheelBuilder(str(sdist)).build(directory=str(sdist.parent))))


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


def test_the_sdist_has_what_the_tests_need(sdist):
    parts = {"src", "tests", "docs", "examples", "benchmarks", "studies", "scripts", "Makefile", "README.md"}
    assert parts <= {path.name for path in sdist.iterdir()}


def test_the_wheel_answers_in_a_new_environment(wheel, tmp_path):
    """One that sees the installed dependencies, and neither this folder nor an installed askwell."""
    venv.create(tmp_path / "new", symlinks=True)
    (packages,) = (tmp_path / "new").glob("lib/python3*/site-packages")
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in site.getsitepackages()))
    python = tmp_path / "new" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-compile", wheel], check=True, cwd=tmp_path)
    known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    asked = ["ask", "--lm", "testbed:bert", "--facts", "testbed:capital", "--prompts", "testbed:single", "France"]
    command = [tmp_path / "new" / "bin" / "askwell", *asked]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=known, check=False)
    assert said.returncode == 0, said.stderr
    assert "Paris" in said.stdout


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
