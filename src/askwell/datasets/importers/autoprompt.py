"""AutoPrompt's data: folders of train, dev and test facts, and files of searched prompts."""

from pathlib import Path

from askwell.datasets.importers.folders import (
    add_relation_folder,
    files_below,
    holds,
    need_folder,
    relation_folders,
    set_name,
)
from askwell.datasets.importers.imported import Imported, whole_splits
from askwell.datasets.importers.records import read_records
from askwell.errors import BadFile

# The places of AutoPrompt's own templates, and the special tokens that we put in ourselves.
_BLANKS = {"{sub_label}": "[X]", "[P]": "[Y]", "[MASK]": "[Y]", "<mask>": "[Y]"}
_SPECIAL = ("[CLS]", "[SEP]", "<s>", "</s>")


def read_autoprompt(source: Path, name: str) -> Imported:
    """The facts of <relation>/{train,dev,test}.jsonl and the prompts of files of relations with templates."""
    if source.suffix != ".jsonl":
        need_folder(source, "<relation>/train.jsonl and so on, or files of prompts")
    imported = Imported()
    folders = relation_folders(source) if source.is_dir() else []
    for folder in folders:
        data_set = name if folder == source else set_name(name, source, folder.parent)
        add_relation_folder(imported, data_set, folder)
    for path in files_below(source, ".jsonl") if source.is_dir() else [source]:
        if path.parent in folders:
            continue
        if holds(path, "template"):
            _add_prompts(imported, f"{name}_{path.stem.removesuffix('_prompts')}", path)
        else:
            imported.skip(path, "holds no templates, and is no train.jsonl, dev.jsonl or test.jsonl of a relation")
    whole_splits(imported, source)
    return imported


def _add_prompts(imported: Imported, data_set: str, path: Path) -> None:
    imported.files += 1
    for number, record in read_records(path):
        relation, text = record.get("relation"), record.get("template")
        if not isinstance(relation, str) or not isinstance(text, str):
            raise BadFile(path, "expected 'relation' and 'template' as text", number)
        if "[T]" in text or "{context}" in text:
            imported.lines += 1
            imported.left_out["its trigger tokens or its context are not filled in"] += 1
            continue
        imported.add_prompt(data_set, relation, path, number, _in_our_blanks(text))


def _in_our_blanks(text: str) -> str:
    for special in _SPECIAL:
        text = text.replace(special, "")
    for theirs, ours in _BLANKS.items():
        text = text.replace(theirs, ours)
    return text
