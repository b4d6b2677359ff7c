"""Write what was measured: a JSON file for each part, and the figures of all parts in summary.json.

`python studies/speed_page.py` makes docs/findings/speed.md from them.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measure import machine


def write_part(folder: Path, part: str, rows: Sequence[Mapping[str, Any]], **conditions: Any) -> None:
    """Write PART.json: the machine, the conditions of the measurement, and one row for each case."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": machine(), "conditions": conditions, "rows": list(rows)}, indent=2)
    (folder / f"{part}.json").write_text(text + "\n", encoding="utf-8")


def merge_summary(folder: Path, figures: Mapping[str, Any]) -> None:
    """Put figures into summary.json, next to those of other parts."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "summary.json"
    summary = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    summary |= {**figures, "machine": machine()}
    path.write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n", encoding="utf-8")
