"""What is imported of another project's data, with counts of what was left out, and the data folder that is written."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from askwell.data.facts import SPLITS, Fact, SplitName, facts_jsonl
from askwell.data.readers import file_name, read_records, text_of
from askwell.data.templates import parse_template, templates_jsonl
from askwell.errors import BadFile, BadOption, BadTemplate, NothingLeft, first_few
from askwell.files import need_writable_folder, write_folder

LABELS = ("sub_label", "obj_label")

ImportedKind = Literal["facts", "prompts", "vocab"]
# What the sets of each kind contain, and how it is grouped into files, in the words of the report.
_HELD: dict[ImportedKind, tuple[str, str]] = {
    "facts": ("facts", "relations"),
    "prompts": ("prompts", "relations"),
    "vocab": ("words", "lists"),
}


@dataclass
class Imported:
    """The lines of the files of each set, and a count of what was read and left out."""

    sets: dict[ImportedKind, dict[str, dict[str, list[str]]]] = field(
        default_factory=lambda: {kind: {} for kind in _HELD}
    )
    """By kind, set, and file inside the set. Vocabularies and answer spaces can be read by --candidates."""
    files: int = 0
    lines: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """Lines that were not taken, by reason."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Files and relations that were not taken, with the reason."""

    def records(self, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        """Return the records of a file of JSON lines, which is counted."""
        self.files += 1
        return read_records(path)

    def add_facts(self, data_set: str, relation: str, path: Path, split: SplitName | None = None) -> None:
        """Take a file of facts with sub_label and obj_label."""
        for number, record in self.records(path):
            self.add_fact(data_set, relation, path, number, record, split=split)

    def add_fact(
        self,
        data_set: str,
        relation: str,
        path: Path,
        line: int,
        record: dict[str, Any],
        *,
        keys: tuple[str, str] = LABELS,
        split: SplitName | None = None,
    ) -> None:
        """Take the fact of a line; one with an empty x or y is left out and counted."""
        self.lines += 1
        x, y = (text_of(path, line, record, key) for key in keys)
        if not x or not y:
            self.left_out["x or y is empty"] += 1
            return
        self.take(data_set, relation, path, line, Fact(x, y), split)

    def take(
        self, data_set: str, relation: str, path: Path, line: int | None, fact: Fact, split: SplitName | None = None
    ) -> None:
        """Take a fact that is known to have an x and a y."""
        name = file_name(path, line, relation)
        self._add("facts", data_set, f"{name}/{split}.jsonl" if split else f"{name}.jsonl", facts_jsonl([fact]))

    def add_prompt(
        self, data_set: str, relation: str, path: Path, line: int | None, text: str, weight: float | None = None
    ) -> None:
        """Take a template; text that is not a template is left out and counted."""
        self.lines += 1
        try:
            record: dict[str, Any] = {"template": parse_template(text).text}
        except BadTemplate as error:
            self.left_out[str(error)] += 1
            return
        if weight is not None:
            record["weight"] = weight
        self._add("prompts", data_set, f"{file_name(path, line, relation)}.jsonl", templates_jsonl([record]))

    def add_words(self, data_set: str, name: str, path: Path, words: Iterable[str]) -> None:
        """Take a list of words, distinct and in their order."""
        for word in dict.fromkeys(word.strip() for word in words):
            if word:
                self._add("vocab", data_set, f"{file_name(path, None, name)}.txt", f"{word}\n")

    def skip(self, path: Path | str, reason: str) -> None:
        """Note a file or relation that is not taken."""
        self.skipped[str(path)] = reason

    def drop_partly_split(self, source: Path) -> None:
        """Drop relations that have some of train, dev and test but not all, and note them."""
        for data_set, files in list(self.sets["facts"].items()):
            for relation in dict.fromkeys(file.partition("/")[0] for file in files if "/" in file):
                lacking = [split for split in SPLITS if f"{relation}/{split}.jsonl" not in files]
                if lacking:
                    self.skip(source / data_set / relation, f"has no facts in {' and '.join(lacking)}")
                    for split in SPLITS:
                        files.pop(f"{relation}/{split}.jsonl", None)
            if not files:
                del self.sets["facts"][data_set]

    def as_json(self, out: Path) -> dict[str, Any]:
        """Return what was read, taken into the data folder `out` and left out, ready for JSON."""
        document: dict[str, Any] = {"out": str(out), "files": self.files, "lines": self.lines}
        for kind, (held, groups) in _HELD.items():
            document[held] = {
                name: {groups: len({file.partition("/")[0] for file in files}), held: sum(map(len, files.values()))}
                for name, files in self.sets[kind].items()
            }
        return document | {"left_out": dict(self.left_out), "skipped": self.skipped}

    def sentences(self, out: Path) -> list[str]:
        """Return the same for people, one sentence each."""
        told, document = [f"{self.lines} lines of {self.files} files read"], self.as_json(out)
        for kind, (held, groups) in _HELD.items():
            for name, counts in document[held].items():
                told.append(f"{out / kind / name}: {counts[held]} {held} of {counts[groups]} {groups}")
        told += [f"left out: {count} × {reason}" for reason, count in sorted(self.left_out.items())]
        by_reason: dict[str, list[str]] = {}
        for path, reason in self.skipped.items():
            by_reason.setdefault(reason, []).append(path)
        for reason, paths in by_reason.items():
            named = first_few(paths)
            told.append(f"skipped: {len(paths)} × {reason} ({named})")
        return told

    def _add(self, kind: ImportedKind, data_set: str, file: str, line: str) -> None:
        self.sets[kind].setdefault(data_set, {}).setdefault(file, []).append(line)


def write_imported(imported: Imported, out: Path) -> None:
    """Write every set in our layout under `out`; each is written whole or not at all, and none is overwritten."""
    folders = {out / kind / name: files for kind, sets in imported.sets.items() for name, files in sets.items()}
    if not folders:
        raise NothingLeft("facts or prompts", imported.left_out + Counter(imported.skipped.values()))
    need_writable_folder(out, "--out")
    for folder in folders:
        if folder.exists():
            raise BadOption(
                f"`out` already has {folder}; name another folder, or give the sets another `name`",
                out="--out",
                name="--name",
            )
    for folder, files in folders.items():
        write_folder(folder, {name: "".join(lines) for name, lines in files.items()})


def need_folder(source: Path, holds: str) -> None:
    """Raise if the source is not a folder; the message says which folder to name."""
    if source.is_dir():
        return
    if not source.exists():
        raise BadFile(source, "there is no such file or folder")
    advice = "; unpack it first" if source.suffix in (".zip", ".gz", ".tar", ".tgz") else ""
    raise BadFile(source, f"is a file; name the folder that holds {holds}{advice}")


def files_below(source: Path, suffix: str) -> list[Path]:
    """Return all files with an ending, in the folder or below it, in a fixed order; hidden ones are ignored."""
    found = (path for path in source.rglob(f"*{suffix}") if path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(source).parts))
