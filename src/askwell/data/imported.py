"""What an importer has read, and how it is written in our layout.

How other projects lay out facts in folders.

Files of other projects: JSON lines, JSON documents and plain lines, with errors that name file and line.
"""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from askwell.data.facts import Fact, SplitName
from askwell.data.templates import Template, parse_template
from askwell.errors import BadFile, BadOption, BadTemplate, CannotWrite, NothingLeft
from askwell.files import need_writable_folder, read_text

Splits = dict[SplitName | None, list[Fact]]
"""The facts of a relation by split; by None, those of a file that is not split."""

Place = tuple[str, str, SplitName | None]
"""A set, a relation of it, and a split; no split if the set has none."""


@dataclass
class Imported:
    """Facts, prompts and word lists by set and relation, and a count of what was read and left out."""

    facts: dict[str, dict[str, Splits]] = field(default_factory=dict)
    prompts: dict[str, dict[str, list[Template]]] = field(default_factory=dict)
    words: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Answer spaces and vocabularies, which --candidates can read."""
    files: int = 0
    lines: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """Lines that were not taken, by reason."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Files and relations that were not taken, with the reason."""

    def add_fact(self, place: Place, path: Path, line: int, record: dict[str, Any], keys: tuple[str, str]) -> None:
        """Takes the fact of a line; one with an empty x or y is left out, counted."""
        self.lines += 1
        texts = []
        for key in keys:
            value = record.get(key)
            if not isinstance(value, str):
                found = ", ".join(map(repr, record)) or "nothing"
                raise BadFile(path, f"expected {key!r} as text; the line has {found}", line)
            texts.append(value.strip())
        data_set, relation, split = place
        if not all(texts):
            self.left_out["x or y is empty"] += 1
            return
        splits = self.facts.setdefault(data_set, {}).setdefault(file_name(path, line, relation), {})
        splits.setdefault(split, []).append(Fact(*texts))

    def add_prompt(
        self, data_set: str, relation: str, path: Path, line: int | None, text: str, weight: float | None = None
    ) -> None:
        """Takes a template; text that is none is left out, counted."""
        self.lines += 1
        try:
            template = parse_template(text, weight)
        except BadTemplate as error:
            self.left_out[str(error)] += 1
            return
        relations = self.prompts.setdefault(data_set, {})
        relations.setdefault(file_name(path, line, relation), []).append(template)

    def add_words(self, data_set: str, name: str, path: Path, words: Iterable[str]) -> None:
        """Takes a list of words, distinct and in their order."""
        distinct = dict.fromkeys(word.strip() for word in words)
        self.words.setdefault(data_set, {})[file_name(path, None, name)] = [word for word in distinct if word]

    def skip(self, path: Path | str, reason: str) -> None:
        """Notes a file or relation that is not taken."""
        self.skipped[str(path)] = reason

    def counts(self) -> dict[str, Any]:
        """What was read, taken and left out, ready for JSON."""
        return {
            "files": self.files,
            "lines": self.lines,
            "facts": {
                name: {
                    "relations": len(relations),
                    "facts": sum(len(facts) for splits in relations.values() for facts in splits.values()),
                }
                for name, relations in self.facts.items()
            },
            "prompts": {
                name: {"relations": len(relations), "prompts": sum(map(len, relations.values()))}
                for name, relations in self.prompts.items()
            },
            "words": {
                name: {"lists": len(lists), "words": sum(map(len, lists.values()))}
                for name, lists in self.words.items()
            },
            "left_out": dict(self.left_out),
            "skipped": dict(self.skipped),
        }


def write_imported(imported: Imported, out: Path) -> None:
    """Writes every set in our layout under `out`; each is there whole or not at all, and none is overwritten."""
    if not imported.facts and not imported.prompts and not imported.words:
        raise NothingLeft("facts or prompts", Counter(imported.left_out) + Counter(imported.skipped.values()))
    sets = {
        **{out / "facts" / name: _fact_files(relations) for name, relations in imported.facts.items()},
        **{out / "prompts" / name: _prompt_files(relations) for name, relations in imported.prompts.items()},
        **{out / "vocab" / name: _word_files(lists) for name, lists in imported.words.items()},
    }
    need_writable_folder(out, "--out")
    for folder in sets:
        if folder.exists():
            raise BadOption(f"--out has {folder} already; name another folder, or give the sets another --name")
    for folder, files in sets.items():
        _write_folder(folder, files)


def _fact_files(relations: dict[str, Splits]) -> dict[str, str]:
    files = {}
    for relation, splits in relations.items():
        for split, facts in splits.items():
            name = f"{relation}.jsonl" if split is None else f"{relation}/{split}.jsonl"
            files[name] = _jsonl({"sub": fact.x, "obj": fact.y} for fact in facts)
    return files


def _prompt_files(relations: dict[str, list[Template]]) -> dict[str, str]:
    return {
        f"{relation}.jsonl": _jsonl(
            {"template": template.text} | ({} if template.weight is None else {"weight": template.weight})
            for template in templates
        )
        for relation, templates in relations.items()
    }


def _word_files(lists: dict[str, list[str]]) -> dict[str, str]:
    return {f"{name}.txt": "".join(f"{word}\n" for word in words) for name, words in lists.items()}


def _jsonl(records: Iterable[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records)


def _write_folder(folder: Path, files: dict[str, str]) -> None:
    aside = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        for name, content in files.items():
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
            (aside / name).write_text(content, encoding="utf-8", newline="\n")
        aside.chmod(0o755)
        aside.rename(folder)
    except OSError as error:
        raise CannotWrite(f"{folder} cannot be written: {error.strerror or error}") from error
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)


def whole_splits(imported: Imported, source: Path) -> None:
    """Takes away relations that have some of train, dev and test but not all, and notes them."""
    for data_set, relations in imported.facts.items():
        for relation, splits in list(relations.items()):
            lacking = [split for split in get_args(SplitName) if split not in splits]
            if None not in splits and lacking:
                del relations[relation]
                imported.skip(source / data_set / relation, f"has no facts in {' and '.join(lacking)}")
    for data_set in [name for name, relations in imported.facts.items() if not relations]:
        del imported.facts[data_set]


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


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers."""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            yield number, line


def read_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, with their line numbers."""
    for number, line in read_lines(path):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadFile(path, f"broken JSON: {error}", number) from error
        if not isinstance(record, dict):
            raise BadFile(path, "a line must be an object, {…}", number)
        _need_whole_characters(path, number, line, record)
        yield number, record


def read_object(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds."""
    text = read_text(path)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadFile(path, f"broken JSON: {error.msg}", error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise BadFile(path, f"broken JSON: {error}") from error
    if not isinstance(content, dict):
        raise BadFile(path, "the file must hold one object, {…}")
    _need_whole_characters(path, None, text, content)
    return content


def first_record(path: Path) -> dict[str, Any]:
    """The first object of a file of JSON lines; empty if it has none."""
    return next((record for _, record in read_records(path)), {})


def file_name(path: Path, line: int | None, name: str) -> str:
    """A relation's name, if it can be the name of a file."""
    if not name or name.startswith(".") or any(character in name for character in "/\\:\0\n") or name != name.strip():
        raise BadFile(path, f"{name!r} is no name for a relation: it must do as a file name", line)
    return name


def _need_whole_characters(path: Path, line: int | None, text: str, content: object) -> None:
    """Raises if JSON's \\u escapes spell half a character, which cannot be written again."""
    if "\\u" not in text:
        return
    try:
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadFile(path, "holds half a character (a lone surrogate such as \\ud800)", line) from error
