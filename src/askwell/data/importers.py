"""Imports other projects' data (LAMA, LPAQA, AutoPrompt, OptiPrompt, BEAR with all sets of lm-pub-quiz, and sets of
questions), and writes it as a data folder."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal

from askwell.data.facts import SPLIT_FILES, Fact
from askwell.data.imported import LABELS, Imported, files_below, need_folder, write_imported
from askwell.data.readers import (
    bounded,
    is_file_name,
    parse_json,
    read_columns,
    read_lines,
    read_object,
    read_records,
    text_of,
    texts_of,
)
from askwell.data.templates import weight_of
from askwell.errors import BadFile, BadOption, UsageError
from askwell.files import read_text
from askwell.views.printable import clipped

# AutoPrompt's names for the blanks, and its special tokens, which we add later.
_BLANKS = {"{sub_label}": "[X]", "[P]": "[Y]", "[MASK]": "[Y]", "<mask>": "[Y]"}
_SPECIAL = dict.fromkeys(("[CLS]", "[SEP]", "<s>", "</s>"), "")


def read_lama(imported: Imported, source: Path, name: str) -> None:
    """Take the facts of each relation, in one file since LAMA has no splits, and one template per T-REx relation."""
    need_folder(source, "TREx, Google_RE, ConceptNet or relations.jsonl")
    root = _inner(source, "data")
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        data_set, kind = f"{name}_{folder.name.lower()}", folder.name.lower()
        if kind.startswith(("trex", "google_re")):
            for path in sorted(folder.glob("*.jsonl")):
                imported.add_facts(data_set, path.stem.removesuffix("_test"), path)
        elif kind.startswith("conceptnet"):
            for path in sorted(folder.glob("*.jsonl")):
                _add_conceptnet(imported, data_set, path)
        elif kind.startswith("squad"):
            imported.skip(folder, "its sentences have no x")
        else:
            imported.skip(folder, "is not a folder of LAMA")
    if (templates := root / "relations.jsonl").is_file():
        _add_templates(imported, f"{name}_trex", templates)


def _add_conceptnet(imported: Imported, data_set: str, path: Path) -> None:
    """Take a file of all relations, with x under 'sub' and the relation under 'pred'."""
    for number, record in imported.records(path):
        if not record.get("sub") or not record.get("pred"):
            imported.lines += 1
            imported.left_out["has no x ('sub') or no relation ('pred')"] += 1
        else:
            imported.add_fact(data_set, str(record["pred"]), path, number, record, keys=("sub", "obj_label"))


def read_lpaqa(imported: Imported, source: Path, name: str) -> None:
    """Take the templates of <folder>/<relation>.jsonl (template and weight) and <folder>/<relation>.txt (one per
    line)."""
    need_folder(source, "mine, paraphrase or other folders of <relation>.jsonl")
    root = _inner(source, "prompt")
    for path in files_below(root, ".jsonl"):
        for number, record in imported.records(path):
            text, weight = text_of(path, number, record, "template"), weight_of(path, number, record)
            imported.add_prompt(_set_name(name, root, path.parent), path.stem, path, number, text, weight)
    for path in files_below(root, ".txt"):
        imported.files += 1
        for number, line in read_lines(path):
            imported.add_prompt(_set_name(name, root, path.parent), path.stem, path, number, line)


def read_autoprompt(imported: Imported, source: Path, name: str) -> None:
    """Take the facts of <relation>/{train,dev,test}.jsonl and the prompts of files of relations with templates."""
    if source.suffix != ".jsonl":
        need_folder(source, "<relation>/train.jsonl and so on, or files of prompts")
    _add_facts_and_templates(imported, source, name, lambda folder: _set_name(name, source, folder))


def read_optiprompt(imported: Imported, source: Path, name: str) -> None:
    """Take the contents of data, relation_metainfo and common_vocabs, or of one of these.

    A folder of <relation>/{train,dev,test}.jsonl or of <relation>.jsonl is a set of facts; a file of relations with
    templates is a set of prompts.
    """
    need_folder(source, "data, relation_metainfo or common_vocabs")
    root = _inner(source, "data")

    def set_of(folder: Path) -> str:
        return _set_name(name, root if folder.is_relative_to(root) else source, folder).lower()

    _add_facts_and_templates(imported, source, name, set_of)
    for path in files_below(source, ".txt"):
        if "vocab" in path.stem:
            words = [line for _, line in read_lines(path)]
            imported.files += 1
            imported.lines += len(words)
            imported.add_words(name, path.stem, path, words)


def _add_facts_and_templates(imported: Imported, source: Path, name: str, set_of: Callable[[Path], str]) -> None:
    """Take folders with the splits of a relation, files of facts, and files of templates; `set_of` names sets."""
    paths = [source] if source.is_file() else files_below(source, ".jsonl")
    relations = {path.parent for path in paths if path.name in SPLIT_FILES}
    for path in paths:
        folder = path.parent
        if path.name in SPLIT_FILES:
            data_set = name if folder == source else set_of(folder.parent)
            imported.add_facts(data_set, folder.name, path, SPLIT_FILES[path.name])
        elif folder in relations:
            imported.skip(path, "is not train.jsonl, dev.jsonl or test.jsonl")
        elif "template" in (first := next((record for _, record in read_records(path)), {})):
            stem = path.stem.removesuffix("_prompts").removesuffix("_relations")
            _add_templates(imported, f"{name}_{stem.lower()}", path)
        elif LABELS[1] in first:
            imported.add_facts(set_of(folder), path.stem, path)
        else:
            imported.skip(path, "holds neither facts nor templates")
    imported.drop_partly_split(source)


def _add_templates(imported: Imported, data_set: str, path: Path) -> None:
    """Take a file that has one template per line, with its relation."""
    for number, record in imported.records(path):
        relation, text = (text_of(path, number, record, key) for key in ("relation", "template"))
        if "[T]" in text or "{context}" in text:
            imported.lines += 1
            imported.left_out["its trigger tokens or its context are not filled in"] += 1
            continue
        for theirs, ours in (_BLANKS | _SPECIAL).items():
            text = text.replace(theirs, ours)
        imported.add_prompt(data_set, relation, path, number, text)


def _inner(source: Path, name: str) -> Path:
    """Return the folder of that name in the source, or else the source itself."""
    return source / name if (source / name).is_dir() else source


def _set_name(name: str, source: Path, folder: Path) -> str:
    """Return the name of a set in `folder`: that of the import, and of the folders between."""
    return "_".join([name, *folder.relative_to(source).parts])


METADATA = "metadata_relations.json"


def read_bear(imported: Imported, source: Path, name: str) -> None:
    """Take the facts, templates and answer spaces of a folder with metadata_relations.json, or of its subfolders."""
    need_folder(source, METADATA)
    if (source / METADATA).is_file():
        _add_set(imported, name, source)
        return
    folders = sorted(path.parent for path in source.glob(f"*/{METADATA}"))
    if not folders:
        raise BadFile(source / METADATA, "there is no such file, neither here nor in a subfolder")
    for folder in folders:
        inner = folder.name.lower()
        _add_set(imported, inner if inner.startswith(name) else f"{name}_{inner}", folder)


def _add_set(imported: Imported, data_set: str, folder: Path) -> None:
    metadata = folder / METADATA
    imported.files += 1
    known = read_object(metadata)
    for relation, about in known.items():
        if not isinstance(about, dict):
            raise BadFile(metadata, f"the entry {relation!r} must be an object, {{…}}")
        for template in _texts(metadata, relation, about, "templates"):
            imported.add_prompt(data_set, relation, metadata, None, template)
        answers = _texts(metadata, relation, about, "answer_space_labels", "answer_space")
        imported.add_words(data_set, relation, metadata, answers)
        ids = _texts(metadata, relation, about, "answer_space_ids")
        by_key = dict(enumerate(answers)) | dict(zip(ids, answers, strict=False))
        if (path := folder / f"{relation}.jsonl").is_file():
            _add_facts(imported, data_set, relation, path, by_key)
        else:
            imported.skip(path, f"{METADATA} names the relation, but there is no such file")
    for path in sorted(folder.glob("*.jsonl")):
        if path.stem not in known:
            imported.skip(path, f"{METADATA} does not name the relation")


def _add_facts(imported: Imported, data_set: str, relation: str, path: Path, answers: dict[Any, str]) -> None:
    for number, record in imported.records(path):
        if "obj_label" not in record:  # a line may refer to the answer space instead
            for key in ("obj_id", "answer_idx"):
                pointer = record.get(key)
                if isinstance(pointer, str | int) and pointer in answers:
                    record["obj_label"] = answers[pointer]
                    break
        imported.add_fact(data_set, relation, path, number, record)


def _texts(path: Path, relation: str, about: dict[str, Any], *keys: str) -> list[str]:
    """Return the list of texts under the first of the keys that exists and is not empty."""
    for key in keys:
        if texts := about.get(key):
            if not isinstance(texts, list):
                raise BadFile(path, f"{key!r} of {relation!r} must be a list of texts")
            return [text_of(path, None, {key: text}, key) for text in texts]
    return []


# ── sets of questions ─────────────────────────────────────────────────────────────────────────────────────────────────

NO_ANSWER = "None"
"""The y of an x that has no right answer."""


def read_lm_kbc(imported: Imported, source: Path, name: str) -> None:
    """Take files of lines with SubjectEntity, Relation and ObjectEntities. Each object is a fact; a list in place of an
    object is the object with its aliases; where there is none, y is "None"."""
    for path in _files(source, ".jsonl"):
        for number, record in imported.records(path):
            imported.lines += 1
            x, relation = (text_of(path, number, record, key) for key in ("SubjectEntity", "Relation"))
            objects = record.get("ObjectEntities")
            if not isinstance(objects, list):
                raise BadFile(path, "'ObjectEntities' must be a list of texts", number)
            for one in objects or [NO_ANSWER]:
                y, *aliases = texts_of(path, number, {"ObjectEntities": one}, "ObjectEntities")
                imported.take(name, relation, path, number, Fact(x, y, aliases=tuple(aliases)))


def read_popqa(imported: Imported, source: Path, name: str) -> None:
    """Take a table with subj, prop, obj, possible_answers (a JSON list, whose others become aliases) and question, of
    which each that names subj is a template."""
    columns = ("subj", "prop", "obj", "possible_answers", "question")

    def choose(there: Collection[str]) -> tuple[str, ...]:
        if missing := [column for column in columns if column not in there]:
            raise UsageError(f"PopQA's table has a column {missing[0]!r}; found {', '.join(there)}")
        return columns

    templates: dict[tuple[str, str], int] = {}
    for path in _files(source, ".tsv"):
        imported.files += 1
        for number, (subject, prop, y, listed, question) in read_columns(path, choose):
            imported.lines += 1
            try:
                answers = parse_json(path, number, listed)
            except BadFile:
                answers = None
            if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
                raise BadFile(path, "'possible_answers' must be a JSON list of texts", number)
            relation = prop.replace("/", " ")
            aliases = tuple(answer for answer in dict.fromkeys(map(str.strip, answers)) if answer not in ("", y))
            imported.take(name, relation, path, number, Fact(subject, y, aliases=aliases))
            if question.count(subject) == 1:
                templates.setdefault((relation, f"{question.replace(subject, '[X]')} [Y]"), number)
    for (relation, text), number in templates.items():
        imported.add_prompt(name, relation, source, number, text)


def read_entity_questions(imported: Imported, source: Path, name: str) -> None:
    """Take RELATION.{train,dev,test}.json files: lists of objects with a question, which is x as a whole, and its
    answers, the first of which is y."""
    need_folder(source, "P17.test.json and so on")
    for path in files_below(source, ".json"):
        relation, _, split = path.stem.partition(".")
        if f"{split}.jsonl" not in SPLIT_FILES:
            imported.skip(path, "is not named RELATION.train.json, RELATION.dev.json or RELATION.test.json")
            continue
        imported.files += 1
        for number, record in enumerate(_entries(path), start=1):
            imported.lines += 1
            question, answers = (
                record.get(key) if isinstance(record, dict) else None for key in ("question", "answers")
            )
            texts: list[Any] = [question, *(answers if isinstance(answers, list) else [None])]
            if len(texts) < 2 or not all(isinstance(text, str) and text.strip() for text in texts):
                raise BadFile(path, f'entry {number} is not of the form {{"question": "…", "answers": ["…", …]}}')
            x, y, *aliases = (bounded(path, None, f"a text of entry {number}", text.strip()) for text in texts)
            imported.take(name, relation, path, None, Fact(x, y, aliases=tuple(aliases)), SPLIT_FILES[f"{split}.jsonl"])
        if f"{relation}.jsonl" not in imported.sets["prompts"].get(name, {}):
            imported.add_prompt(name, relation, path, None, "[X] [Y]")
    imported.drop_partly_split(source)


def _entries(path: Path) -> list[Any]:
    entries = parse_json(path, None, read_text(path))
    if not isinstance(entries, list):
        raise BadFile(path, "expected a list of questions with their answers")
    return entries


def _files(source: Path, suffix: str) -> list[Path]:
    """Return the file itself, or those with this ending in a folder."""
    if source.suffix == suffix and source.is_file():
        return [source]
    need_folder(source, f"files that end in {suffix}")
    return files_below(source, suffix)


# ── all formats ───────────────────────────────────────────────────────────────────────────────────────────────────────

ImportFormat = Literal["lama", "lpaqa", "autoprompt", "optiprompt", "bear", "popqa", "entity-questions", "lm-kbc"]

READERS: dict[ImportFormat, Callable[[Imported, Path, str], None]] = {
    "lama": read_lama,
    "lpaqa": read_lpaqa,
    "autoprompt": read_autoprompt,
    "optiprompt": read_optiprompt,
    "bear": read_bear,
    "popqa": read_popqa,
    "entity-questions": read_entity_questions,
    "lm-kbc": read_lm_kbc,
}


def import_data(data_format: ImportFormat, source: Path, out: Path, name: str | None = None) -> Imported:
    """Write another project's facts, prompts and word lists into the data folder `out`, and return them.

    The names of the sets begin with `name`, by default the name of the format.
    """
    if name is not None and not is_file_name(name):
        raise BadOption(f"`name` {clipped(repr(name), 200)} cannot be the name of a folder", name="--name")
    imported = Imported()
    READERS[data_format](imported, source, name or data_format)
    write_imported(imported, out)
    return imported
