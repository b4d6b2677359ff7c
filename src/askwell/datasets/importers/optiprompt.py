"""OptiPrompt's repository: split and test-only facts, templates of several methods, common vocabularies."""

from pathlib import Path

from askwell.datasets.importers.folders import (
    LABELS,
    add_fact_file,
    add_relation_folder,
    add_template_file,
    files_below,
    holds,
    need_folder,
    relation_folders,
    set_name,
)
from askwell.datasets.importers.imported import Imported, whole_splits
from askwell.datasets.importers.records import read_lines


def read_optiprompt(source: Path, name: str) -> Imported:
    """What lies in data, relation_metainfo and common_vocabs, or in one of these.

    A folder of <relation>/{train,dev,test}.jsonl or of <relation>.jsonl is a set of facts; a file of relations with
    templates is a set of prompts.
    """
    need_folder(source, "data, relation_metainfo or common_vocabs")
    imported = Imported()
    root = source / "data" if (source / "data").is_dir() else source
    folders = relation_folders(source)
    for folder in folders:
        data_set = name if folder == source else _set_name(name, source, root, folder.parent)
        add_relation_folder(imported, data_set, folder)
    for path in files_below(source, ".jsonl"):
        if path.parent in folders:
            continue
        if holds(path, "template"):
            add_template_file(imported, f"{name}_{path.stem.removesuffix('_relations').lower()}", path)
        elif holds(path, LABELS[1]):
            add_fact_file(imported, (_set_name(name, source, root, path.parent), path.stem, None), path)
        else:
            imported.skip(path, "holds neither facts nor templates")
    for path in files_below(source, ".txt"):
        if "vocab" in path.stem:
            imported.files += 1
            words = [line for _, line in read_lines(path)]
            imported.lines += len(words)
            imported.add_words(name, path.stem, path, words)
    whole_splits(imported, source)
    return imported


def _set_name(name: str, source: Path, root: Path, folder: Path) -> str:
    return set_name(name, root if folder.is_relative_to(root) else source, folder).lower()
