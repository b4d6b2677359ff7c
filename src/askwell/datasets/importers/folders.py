"""How other projects lay out facts in folders."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from askwell.datasets.importers.imported import Imported, Place
from askwell.datasets.importers.records import first_record, read_records
from askwell.errors import BadFile
from askwell.facts.fact import SplitName

LABELS = ("sub_label", "obj_label")
_SPLITS = {f"{split}.jsonl": split for split in get_args(SplitName)}


def need_folder(source: Path, holds: str) -> None:
    """Raises if the source is no folder, and says what folder is meant."""
    if source.is_dir():
        return
    if not source.exists():
        raise BadFile(source, "there is no such file or folder")
    advice = "; unpack it first" if source.suffix in (".zip", ".gz", ".tar", ".tgz") else ""
    raise BadFile(source, f"is a file; name the folder that holds {holds}{advice}")


def files_below(source: Path, suffix: str) -> list[Path]:
    """All files with an ending, in the folder or deeper, in a fixed order; hidden ones are left alone."""
    found = (path for path in source.rglob(f"*{suffix}") if path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(source).parts))


def relation_folders(source: Path) -> list[Path]:
    """The folders that hold train.jsonl, dev.jsonl or test.jsonl."""
    return sorted({path.parent for path in files_below(source, ".jsonl") if path.name in _SPLITS})


def set_name(name: str, source: Path, folder: Path) -> str:
    """The name of a set that lies in `folder`: that of the import, and of the folders between."""
    return "_".join([name, *folder.relative_to(source).parts])


def add_relation_folder(imported: Imported, data_set: str, folder: Path) -> None:
    """Takes the splits of a relation, which is named like its folder."""
    for path in sorted(folder.glob("*.jsonl")):
        if path.name in _SPLITS:
            add_fact_file(imported, (data_set, folder.name, _SPLITS[path.name]), path)
        else:
            imported.skip(path, "is no train.jsonl, dev.jsonl or test.jsonl")


def add_fact_file(imported: Imported, place: Place, path: Path) -> None:
    """Takes a file of facts with sub_label and obj_label."""
    for number, record in _counted(imported, path):
        imported.add_fact(place, path, number, record, LABELS)


def add_template_file(imported: Imported, data_set: str, path: Path) -> None:
    """Takes a file that has one template a line, with its relation."""
    for number, record in _counted(imported, path):
        texts = [record.get(key) for key in ("relation", "template")]
        if not all(isinstance(text, str) for text in texts):
            raise BadFile(path, "expected 'relation' and 'template' as text", number)
        relation, template = map(str, texts)
        imported.add_prompt(data_set, relation, path, number, template)


def holds(path: Path, key: str) -> bool:
    """Whether the first record of a file of JSON lines has a key."""
    return key in first_record(path)


def _counted(imported: Imported, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    imported.files += 1
    return read_records(path)
