"""Runs commands in this process, as a shell would."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from builders import tiny
from builders.commands import exit_code
from builders.worlds import PAIRS, write_relation


@dataclass(frozen=True)
class Finished:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def _nothing_pulled(monkeypatch, tmp_path_factory):
    """Nothing that a developer has pulled or named counts in a test."""
    monkeypatch.delenv("ASKWELL_DATA", raising=False)
    monkeypatch.setenv("ASKWELL_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def askwell(capsys):
    """Runs a command line and gives its exit code and what it printed."""

    def run(*arguments: object) -> Finished:
        capsys.readouterr()
        code = exit_code(*arguments)
        printed = capsys.readouterr()
        return Finished(code, printed.out, printed.err)

    return run


@pytest.fixture(scope="session")
def lms(tmp_path_factory) -> dict[str, Path]:
    """Checkpoint folders of tiny LMs, by name."""
    folder = tmp_path_factory.mktemp("lms")
    for name in ("bert", "roberta", "bart", "llama"):
        tiny.save(*tiny.TINY[name](), folder / name)
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture
def facts(tmp_path) -> Path:
    """A relation as a folder of three files."""
    return write_relation(tmp_path / "capitals", train=PAIRS[:6], dev=PAIRS[6:8], test=PAIRS[6:])
