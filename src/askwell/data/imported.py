"""What an importer has read of another project's data, and how it is written as a data folder."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from askwell.data.facts import SPLIT_FILES, Fact, SplitName, facts_jsonl
from askwell.data.records import file_name, first_record, read_records
from askwell.data.templates import Template, parse_template
from askwell.errors import BadFile, BadOption, BadTemplate, NothingLeft
from askwell.files import need_writable_folder, write_folder

FactsBySplit = dict[SplitName | None, list[Fact]]
"""The facts of a relation by split; by None, those of a file that is not split."""

Place = tuple[str, str, SplitName | None]
"""A set, a relation of it, and a split; no split if the set has none."""


@dataclass
class Imported:
    """Facts, prompts and word lists by set and relation, and a count of what was read and left out."""

    facts: dict[str, dict[str, FactsBySplit]] = field(default_factory=dict)
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

    def report(self, out: Path) -> "ImportReport":
        """What was read, taken and left out."""
        return ImportReport(
            out=str(out),
            files=self.files,
            lines=self.lines,
            facts={
                name: {
                    "relations": len(relations),
                    "facts": sum(len(facts) for splits in relations.values() for facts in splits.values()),
                }
                for name, relations in self.facts.items()
            },
            prompts={
                name: {"relations": len(relations), "prompts": sum(map(len, relations.values()))}
                for name, relations in self.prompts.items()
            },
            words={
                name: {"lists": len(lists), "words": sum(map(len, lists.values()))}
                for name, lists in self.words.items()
            },
            left_out=dict(self.left_out),
            skipped=dict(self.skipped),
        )


@dataclass(frozen=True)
class ImportReport:
    """What an import has read, taken and left out."""

    out: str
    """The data folder that it wrote to."""
    files: int
    lines: int
    facts: dict[str, dict[str, int]]
    """Relations and facts of each set."""
    prompts: dict[str, dict[str, int]]
    """Relations and prompts of each set."""
    words: dict[str, dict[str, int]]
    """Lists and words of each set."""
    left_out: dict[str, int]
    """Lines that were not taken, by reason."""
    skipped: dict[str, str]
    """Files and relations that were not taken, with the reason."""

    def sentences(self) -> list[str]:
        """The report for people, one sentence each."""
        told = [f"{self.lines} lines of {self.files} files read"]
        for folder, counts, held, groups in (
            ("facts", self.facts, "facts", "relations"),
            ("prompts", self.prompts, "prompts", "relations"),
            ("vocab", self.words, "words", "lists"),
        ):
            for name, about in counts.items():
                told.append(f"{Path(self.out, folder, name)}: {about[held]} {held} of {about[groups]} {groups}")
        told += [f"left out: {count} × {reason}" for reason, count in sorted(self.left_out.items())]
        by_reason: dict[str, list[str]] = {}
        for path, reason in self.skipped.items():
            by_reason.setdefault(reason, []).append(path)
        for reason, paths in by_reason.items():
            named = ", ".join(paths[:3]) + (", …" if len(paths) > 3 else "")
            told.append(f"skipped: {len(paths)} × {reason} ({named})")
        return told


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
        write_folder(folder, files)


def _fact_files(relations: dict[str, FactsBySplit]) -> dict[str, str]:
    files = {}
    for relation, splits in relations.items():
        for split, facts in splits.items():
            name = f"{relation}.jsonl" if split is None else f"{relation}/{split}.jsonl"
            files[name] = facts_jsonl(facts)
    return files


def _prompt_files(relations: dict[str, list[Template]]) -> dict[str, str]:
    return {
        f"{relation}.jsonl": "".join(f"{json.dumps(_record(template), ensure_ascii=False)}\n" for template in templates)
        for relation, templates in relations.items()
    }


def _word_files(lists: dict[str, list[str]]) -> dict[str, str]:
    return {f"{name}.txt": "".join(f"{word}\n" for word in words) for name, words in lists.items()}


def _record(template: Template) -> dict[str, Any]:
    return {"template": template.text} | ({} if template.weight is None else {"weight": template.weight})


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
    return sorted({path.parent for path in files_below(source, ".jsonl") if path.name in SPLIT_FILES})


def set_name(name: str, source: Path, folder: Path) -> str:
    """The name of a set that lies in `folder`: that of the import, and of the folders between."""
    return "_".join([name, *folder.relative_to(source).parts])


def add_relation_folder(imported: Imported, data_set: str, folder: Path) -> None:
    """Takes the splits of a relation, which is named like its folder."""
    for path in sorted(folder.glob("*.jsonl")):
        if path.name in SPLIT_FILES:
            add_fact_file(imported, (data_set, folder.name, SPLIT_FILES[path.name]), path)
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
