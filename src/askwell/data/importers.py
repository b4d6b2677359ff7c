"""Readers of other projects' data: LAMA, LPAQA, AutoPrompt, OptiPrompt, and BEAR with all sets of lm-pub-quiz."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from askwell.data.imported import (
    LABELS,
    Imported,
    ImportReport,
    add_fact_file,
    add_relation_folder,
    add_template_file,
    files_below,
    holds,
    need_folder,
    relation_folders,
    set_name,
    whole_splits,
    write_imported,
)
from askwell.data.records import read_lines, read_object, read_records
from askwell.errors import BadFile, BadOption


def read_lama(source: Path, name: str) -> Imported:
    """The facts of each relation, in one file since LAMA has no splits, and one template a T-REx relation."""
    need_folder(source, "TREx, Google_RE, ConceptNet or relations.jsonl")
    root = source / "data" if (source / "data").is_dir() else source
    imported = Imported()
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        data_set, kind = f"{name}_{folder.name.lower()}", folder.name.lower()
        if kind.startswith(("trex", "google_re")):
            for path in sorted(folder.glob("*.jsonl")):
                add_fact_file(imported, (data_set, path.stem.removesuffix("_test"), None), path)
        elif kind.startswith("conceptnet"):
            for path in sorted(folder.glob("*.jsonl")):
                _add_conceptnet(imported, data_set, path)
        elif kind.startswith("squad"):
            imported.skip(folder, "its sentences have no x")
        else:
            imported.skip(folder, "is no folder of LAMA")
    if (templates := root / "relations.jsonl").is_file():
        add_template_file(imported, f"{name}_trex", templates)
    return imported


def _add_conceptnet(imported: Imported, data_set: str, path: Path) -> None:
    """All relations lie in one file, x under 'sub' and the relation under 'pred'."""
    imported.files += 1
    for number, record in read_records(path):
        if not record.get("sub") or not record.get("pred"):
            imported.lines += 1
            imported.left_out["has no x ('sub') or no relation ('pred')"] += 1
        else:
            imported.add_fact((data_set, str(record["pred"]), None), path, number, record, ("sub", "obj_label"))


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


Format = Literal["lama", "lpaqa", "autoprompt", "optiprompt", "bear"]

READERS: dict[Format, Callable[[Path, str], Imported]] = {
    "lama": read_lama,
    "lpaqa": read_lpaqa,
    "autoprompt": read_autoprompt,
    "optiprompt": read_optiprompt,
    "bear": read_bear,
}


def import_data(data_format: Format, source: Path, out: Path, name: str | None = None) -> ImportReport:
    """Writes another project's facts, prompts and word lists into the data folder `out`.

    The names of the sets begin with `name`, or else with that of the format.
    """
    if name is not None and (not name or name.startswith(".") or "/" in name or "\\" in name):
        raise BadOption(f"--name {name!r}: it must do as the name of a folder")
    imported = READERS[data_format](source, name or data_format)
    write_imported(imported, out)
    return imported.report(out)
