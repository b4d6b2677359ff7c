"""The results of studies, a run on each line of a JSONL file, and the facts that they draw."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from askwell.data.facts import Fact

RESULTS = Path(__file__).parent / "results"


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of results; none if there is no such file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def append_line(path: Path, line: dict[str, Any]) -> dict[str, Any]:
    """Add a line to a file of results, and return it."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return line


def sample(facts: Sequence[Fact], count: int) -> list[Fact]:
    """Draw this many of the facts, the same ones every time."""
    return sorted(random.Random(0).sample(list(facts), min(count, len(facts))))
