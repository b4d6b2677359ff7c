"""Sweeps over a small world, and what they leave in a store."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# They differ from machine to machine, or from minute to minute.
INCIDENTAL = ("began", "seconds", "seconds_to_load", "git")


@dataclass(frozen=True)
class World:
    """A folder with two LMs (bert, llama), two relations of the set places, and the prompts hand and many."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def write_sweep(self, where: Path, **changed: Any) -> Path:
        """A sweep of 2 LMs × 2 relations × 2 prompts × 2 settings × 1 seed, with some keys changed or left out."""
        table = {
            "store": str(where / "store"),
            "data": str(self.data),
            "lms": [str(self.folder / "bert"), str(self.folder / "llama")],
            "facts": ["places"],
            "seeds": [0],
            "prompts": {"hand": ["hand"], "many": ["many"]},
            "settings": {"init": {"tuned": False}, "soft": {"epochs": 2}},
            "engine": "in-process",
        } | changed
        path = where / "sweep.toml"
        path.write_text(as_toml({key: value for key, value in table.items() if value is not None}))
        return path


def as_toml(table: dict[str, Any], above: str = "") -> str:
    """TOML of plain values and tables in tables; JSON writes its strings, numbers and lists the same way."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    lines = [f"{json.dumps(key)} = {_value(value)}" for key, value in plain.items()]
    for key, inner in table.items():
        if isinstance(inner, dict):
            lines += [f"[{above}{json.dumps(key)}]", as_toml(inner, f"{above}{json.dumps(key)}.")]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        tables = (", ".join(f"{key} = {json.dumps(inner)}" for key, inner in entry.items()) for entry in value)
        return "[" + ", ".join(f"{{{table}}}" for table in tables) + "]"
    return json.dumps(value)


def contents(store: Path) -> dict[str, Any]:
    """All files of the runs and failures of a store, without what tells of times; nothing may be left unfinished."""
    unfinished = store / "unfinished"
    assert not unfinished.exists() or not list(unfinished.iterdir())
    return files_in(store, "runs") | files_in(store, "failed")


def files_in(folder: Path, part: str = ".") -> dict[str, Any]:
    """All files in a folder, or in a part of it, by their paths in the folder; without what tells of times, or
    where the facts lie."""
    files: dict[str, Any] = {}
    for path in sorted((folder / part).rglob("*")):
        if path.is_file() and path.name != "facts_path.txt":
            files[path.relative_to(folder).as_posix()] = path.read_bytes()
    for name in [name for name in files if Path(name).name == "environment.json"]:
        made_with = json.loads(files[name])
        assert made_with["seconds"] >= 0
        files[name] = {key: value for key, value in made_with.items() if key not in INCIDENTAL}
    return files
