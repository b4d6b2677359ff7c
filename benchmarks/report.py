"""Writes what was measured: JSON and Markdown for each part, and the figures of all parts in one summary."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measure import machine


def write_part(folder: Path, part: str, title: str, rows: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> None:
    """Writes <part>.json and <part>.md: one row for each case, the same columns in all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    where = machine()
    text = json.dumps({"title": title, "machine": where, "rows": list(rows), "notes": list(notes)}, indent=2)
    (folder / f"{part}.json").write_text(text + "\n", encoding="utf-8")
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [f"# {title}", "", ", ".join(f"{name} {value}" for name, value in where.items()), ""]
    lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_cell(row.get(column)) for column in columns) + " |" for row in rows]
    lines += ["", *(f"- {note}" for note in notes)]
    (folder / f"{part}.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def merge_summary(folder: Path, figures: Mapping[str, Any]) -> None:
    """Puts figures into summary.json beside those of other parts."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "summary.json"
    summary = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    summary |= {**figures, "machine": machine()}
    path.write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['median_s']:.3f} ({value['least_s']:.3f}–{value['most_s']:.3f})"
    return f"{value:.3g}" if isinstance(value, float) else str("" if value is None else value)
