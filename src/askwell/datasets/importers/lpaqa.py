"""LPAQA's prompt folder: mined, paraphrased and other templates, a folder each, with or without weights."""

import math
from pathlib import Path
from typing import Any

from askwell.datasets.importers.folders import files_below, need_folder, set_name
from askwell.datasets.importers.imported import Imported
from askwell.datasets.importers.records import read_lines, read_records
from askwell.errors import BadFile


def read_lpaqa(source: Path, name: str) -> Imported:
    """The templates of <folder>/<relation>.jsonl (template and weight) and <folder>/<relation>.txt (one a line)."""
    need_folder(source, "mine, paraphrase or other folders of <relation>.jsonl")
    root = source / "prompt" if (source / "prompt").is_dir() else source
    imported = Imported()
    for path in files_below(root, ".jsonl"):
        imported.files += 1
        data_set = set_name(name, root, path.parent)
        for number, record in read_records(path):
            template = record.get("template")
            if not isinstance(template, str):
                raise BadFile(path, "expected 'template' as text", number)
            imported.add_prompt(data_set, path.stem, path, number, template, _weight(path, number, record))
    for path in files_below(root, ".txt"):
        imported.files += 1
        for number, line in read_lines(path):
            imported.add_prompt(set_name(name, root, path.parent), path.stem, path, number, line)
    return imported


def _weight(path: Path, number: int, record: dict[str, Any]) -> float | None:
    weight = record.get("weight")
    if weight is None:
        return None
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
        raise BadFile(path, f"'weight' is {weight!r}; it must be a number that is not negative", number)
    return float(weight)
