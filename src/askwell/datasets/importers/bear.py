"""BEAR, and every other set of lm-pub-quiz: facts by relation, templates and answer spaces in one metadata file."""

from pathlib import Path
from typing import Any

from askwell.datasets.importers.folders import need_folder
from askwell.datasets.importers.imported import Imported
from askwell.datasets.importers.records import read_object, read_records
from askwell.errors import BadFile

METADATA = "metadata_relations.json"


def read_bear(source: Path, name: str) -> Imported:
    """The facts, templates and answer spaces of a folder with metadata_relations.json, or of all that lie in it."""
    need_folder(source, METADATA)
    imported = Imported()
    if (source / METADATA).is_file():
        _add_set(imported, name, source)
        return imported
    folders = sorted(path.parent for path in source.glob(f"*/{METADATA}"))
    if not folders:
        raise BadFile(source / METADATA, "there is no such file, and none in a folder beside it")
    for folder in folders:
        inner = folder.name.lower()
        _add_set(imported, inner if inner.startswith(name) else f"{name}_{inner}", folder)
    return imported


def _add_set(imported: Imported, data_set: str, folder: Path) -> None:
    metadata = folder / METADATA
    imported.files += 1
    known = read_object(metadata)
    for relation, about in known.items():
        if not isinstance(about, dict):
            raise BadFile(metadata, f"what it says of {relation!r} must be an object, {{…}}")
        for template in _texts(metadata, relation, about, "templates"):
            imported.add_prompt(data_set, relation, metadata, None, template)
        if answers := _answer_space(metadata, relation, about):
            imported.add_words(data_set, relation, metadata, answers)
        path = folder / f"{relation}.jsonl"
        if path.is_file():
            _add_facts(imported, data_set, relation, path, _answers_by_key(metadata, relation, about))
        else:
            imported.skip(path, f"{METADATA} names the relation, but there is no such file")
    for path in sorted(folder.glob("*.jsonl")):
        if path.stem not in known:
            imported.skip(path, f"{METADATA} does not name the relation")


def _add_facts(imported: Imported, data_set: str, relation: str, path: Path, answers: dict[Any, str]) -> None:
    imported.files += 1
    for number, record in read_records(path):
        if "obj_label" not in record:  # a line may point into the answer space instead
            for key in ("obj_id", "answer_idx"):
                pointer = record.get(key)
                if isinstance(pointer, str | int) and pointer in answers:
                    record["obj_label"] = answers[pointer]
                    break
        imported.add_fact((data_set, relation, None), path, number, record, ("sub_label", "obj_label"))


def _answer_space(path: Path, relation: str, about: dict[str, Any]) -> list[str]:
    return _texts(path, relation, about, "answer_space_labels") or _texts(path, relation, about, "answer_space")


def _answers_by_key(path: Path, relation: str, about: dict[str, Any]) -> dict[Any, str]:
    """Answers by their id and by their place in the answer space."""
    answers = _answer_space(path, relation, about)
    ids = _texts(path, relation, about, "answer_space_ids")
    return dict(enumerate(answers)) | dict(zip(ids, answers, strict=False))


def _texts(path: Path, relation: str, about: dict[str, Any], key: str) -> list[str]:
    texts = about.get(key) or []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise BadFile(path, f"{key!r} of {relation!r} must be a list of texts")
    return texts
