import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from data_server import DataServer
from tiny_sets import CONTENT, TINY, UPSTREAM, manifest_of

from askwell.data import published as catalogue

sys.path.insert(
    0, str(Path(__file__).resolve().parents[2] / "scripts")
)  # some of what is tested is no part of the package


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where pulled data goes: never the cache of the machine."""
    for variable in ("ASKWELL_DATA", "ASKWELL_DATA_MIRROR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("ASKWELL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "data"


@pytest.fixture
def tiny_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hashes of the tiny sets in place of those of the published ones."""
    manifest = manifest_of(CONTENT)
    monkeypatch.setattr(catalogue, "_manifest", lambda: manifest)
    for data_set in TINY:
        data_set.__dict__.pop("files", None)


@pytest.fixture
def server(tiny_manifest: None, monkeypatch: pytest.MonkeyPatch) -> Iterable[DataServer]:
    """A server on this machine that has the tiny sets."""
    with DataServer({UPSTREAM[path]: data for path, data in CONTENT.items()}) as running:
        monkeypatch.setenv("ASKWELL_DATA_MIRROR", running.address)
        yield running


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes | list[Any]], Path]:
    """Writes a file below the test's folder: text, bytes, or a list of records as JSON lines."""

    def write(name: str, content: str | bytes | list[Any]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        else:
            path.write_text("\n".join(json.dumps(record) for record in content), encoding="utf-8")
        return path

    return write
