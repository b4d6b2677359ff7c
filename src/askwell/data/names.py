"""What a name refers to: testbed:capital, trex_original/P19 in the data folder, a path, a data set of the Hugging Face
hub, or a whole set of relations; and where the data folder is."""

import difflib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePath
from typing import Any, Literal

from askwell.data.facts import SPLIT_FILES, Relation, SplitLines
from askwell.data.readers import SUFFIXES, USUAL, Columns, parse_facts, read_records, relation_in_memory, text_of
from askwell.data.split import SplitRule, refuse_rule, rule_with, split_relation
from askwell.data.templates import Template, parse_template, read_templates
from askwell.data.testbed import (
    PREFIXES,
    prefix_and_name,
    relation_names,
    relations,
    testbed_prompts,
    testbed_relation,
)
from askwell.errors import BadFile, BadOption, NoPrompts, UsageError, checked, first_few
from askwell.files import cache_folder
from askwell.views.printable import clipped

VARIABLE = "ASKWELL_DATA"
_LAMA = Path("meta/lama_relations.jsonl")
"""LAMA's list of relations, in the data folder."""

SourceKind = Literal["facts", "prompts"]

_SUFFIXES: dict[SourceKind, tuple[str, ...]] = {"facts": SUFFIXES, "prompts": (".jsonl",)}


def pulled_data_folder() -> Path:
    """Return the folder for the files of `askwell data pull`, whether it exists or not."""
    return cache_folder() / "data"


def data_folder(option: Path | str | None) -> Path | None:
    """Return the data folder: the option, else the environment variable ASKWELL_DATA, else the pulled data, else
    none."""
    if option is not None:
        folder, origin = Path(option), "`data`"
    elif value := os.environ.get(VARIABLE):
        folder, origin = Path(value), f"the environment variable {VARIABLE}"
    else:
        pulled = pulled_data_folder()
        return pulled if pulled.is_dir() else None
    if not folder.is_dir():
        raise BadOption(f"{origin} is {folder}, which is not a folder", data="--data")
    return folder


def need_data_folder(option: Path | None) -> Path:
    """Return the data folder; raises if there is none."""
    folder = data_folder(option)
    if folder is None:
        raise BadOption(
            f"there is no data in {pulled_data_folder()}; get it with `askwell data pull`, or name a folder with "
            "`data`",
            data="--data",
        )
    return folder


def find(source: str, kind: SourceKind, data: Path | None) -> Path:
    """Return the path that `source` means: itself if it exists, else the facts or prompts of that name in the data
    folder."""
    path = Path(source)
    if path.exists():
        return path
    if kind == "prompts" and " " in source:
        raise BadFile(
            source,
            'there is no such file, and a template has two blanks, [X] and [Y], in brackets: "[X] was born in [Y] ."',
        )
    if data is None:
        raise BadFile(
            source,
            "there is no such file or folder. If this is a name in a data folder, name that folder:"
            f" `data` FOLDER, or the environment variable {VARIABLE}; `askwell data pull` fetches the published sets",
            data="--data",
        )
    # An absolute path or one with '..' would lead out of the data folder, so it is not a name.
    if path.is_absolute() or ".." in path.parts:
        raise BadFile(source, "there is no such file or folder")
    base = data / kind
    places = [base / source, *(base / f"{PurePath(source)}{suffix}" for suffix in _SUFFIXES[kind])]
    for place in places:
        if place.exists():
            return place
    looked = ", ".join([str(path), *map(str, places)])
    names = sorted(_names(kind, base))
    close = [name for name in names if name.rpartition("/")[2] == source][:3]
    close = close or difflib.get_close_matches(source, names, n=3)
    meant = f". Did you mean {' or '.join(close)}?" if close else ""
    pull = "; `askwell data list` shows what can be pulled" if data == pulled_data_folder() else ""
    raise BadFile(source, f"there is no such file or folder; looked for {looked}{pull}{meant}")


def _names(kind: SourceKind, base: Path) -> Iterator[str]:
    for path in base.rglob("*"):
        name = path.relative_to(base)
        if kind == "facts" and path.name in SPLIT_FILES:
            if path.name == "train.jsonl":
                yield name.parent.as_posix()
        elif path.suffix in _SUFFIXES[kind]:
            yield name.with_suffix("").as_posix()


@checked
def load_relation(
    source: Any,
    x: str | None = None,
    y: str | None = None,
    *,
    split: SplitRule | str | None = None,
    ratio: str | Sequence[float | int] | None = None,
    seed: int = 0,
    name: str | None = None,
    data: Path | str | None = None,
) -> Relation:
    """Return the relation of a name, a path, or facts in memory.

    A name is testbed:capital, trex_original/P19 in the `data` folder, or hub:NAME:SPLIT for a data set on the hub
    (without :SPLIT, its own train, validation and test), which needs `datasets`. A path is a folder with train.jsonl,
    dev.jsonl and test.jsonl, or a single .jsonl, .csv or .tsv file. In memory, facts are a list of pairs, a dictionary
    from x to y (or to several ys), or a table: a pandas or polars frame, an Arrow table, a datasets.Dataset; or a
    dictionary of these by split. `x` and `y` name the columns if they are not called x and y.

    Facts that are not split yet are split at random with `seed`: 80-10-10, or in another `ratio` such as "70-15-15";
    `split` is "random", "stratified" (each y has the same share of every split) or "distinct-y" (no y is in two
    splits)."""
    columns, rule = Columns(x, y), rule_with(split, ratio)
    if not isinstance(source, str | Path):
        return relation_in_memory(source, columns, split=rule, seed=seed, name=name or y or "facts")
    relation = _named_relation(source, columns, data, rule, seed)
    return relation if name is None else replace(relation, name=name)


def as_relation(given: Any) -> Relation:
    """Return a relation as it is; a name, a path or facts in memory as `load_relation` reads them."""
    return given if isinstance(given, Relation) else load_relation(given)


@checked
def load_folds(
    source: Any,
    folds: int,
    x: str | None = None,
    y: str | None = None,
    *,
    split: SplitRule | str | None = None,
    ratio: str | Sequence[float | int] | None = None,
    seed: int = 0,
    name: str | None = None,
    data: Path | str | None = None,
) -> list[Relation]:
    """Return facts that are not split yet as relations for cross-validation: in each, another of so many folds is test,
    and the other facts are train and dev, in the proportion of the `ratio`. The rest is as for `load_relation`."""
    rules = (rule_with(split, ratio, (number, max(folds, 0))) for number in range(1, max(folds, 1) + 1))
    return [load_relation(source, x, y, split=rule, seed=seed, name=name, data=data) for rule in rules]


def load_test_facts(
    source: Any, x: str | None = None, y: str | None = None, *, data: Path | str | None = None
) -> Relation:
    """Return facts that are only asked about: all of a single file is test; anything else is as `load_relation` reads
    it."""
    if isinstance(source, str | Path) and not str(source).startswith((*PREFIXES, HUB)):
        path = find(str(source), "facts", data_folder(data))
        if path.is_file():
            return Relation.of(_last_part(path), (), (), parse_facts(path, Columns(x, y)))
    return load_relation(source, x, y, data=data)


def _named_relation(
    source: str | Path, columns: Columns, data: Path | str | None, split: str | None, seed: int
) -> Relation:
    if str(source).startswith(HUB):
        name, rows = read_hub(str(source))
        try:
            relation = relation_in_memory(rows, columns, split=split, seed=seed, name=name)
        except UsageError as error:
            raise BadFile(source, str(error).removeprefix("facts: "), None, **error.options) from error
        return _from(str(source), columns, relation)
    if str(source).startswith(PREFIXES):
        if split is not None:
            refuse_rule(str(source), split)
        if columns != USUAL:
            raise BadOption(f"{source} has only the columns x and y; leave out `x` and `y`", x="--x", y="--y")
        return _from(str(source), columns, testbed_relation(str(source)))
    path = find(str(source), "facts", data_folder(data))
    # Results must not name paths of this machine: the name is that in the data folder, or the path's last part.
    name = _last_part(path) if path == Path(source) else PurePath(source).as_posix()
    if path.is_file():
        facts = parse_facts(path, columns)
        try:
            return _from(str(path.resolve()), columns, split_relation(name, facts, split, seed))
        except BadOption:
            raise
        except UsageError as error:
            raise BadFile(path, str(error)) from error
    if split is not None:
        refuse_rule(f"the folder {source}", split)
    relation = Relation.of(name, *read_split_files(path, columns).splits.values())
    return _from(str(path.resolve()), columns, relation)


def _from(source: str, columns: Columns, relation: Relation) -> Relation:
    """Return the relation with where it was read."""
    return replace(relation, origin=replace(relation.origin, source=source, x=columns.x, y=columns.y))


def read_split_files(folder: Path, columns: Columns = USUAL) -> SplitLines:
    """Return the relation whose splits are in a folder; one with test.jsonl alone can be scored, but not trained on. It
    is not sorted, since the order of train's file decides ties."""
    missing = [file for file in SPLIT_FILES if not (folder / file).is_file()]
    one_file = f"a single file of facts ends in {', '.join(SUFFIXES)}"
    expected = f"a folder of facts has {', '.join(SPLIT_FILES)}"
    if len(missing) == len(SPLIT_FILES):
        inside = [inner.name for inner in _relations_in(folder)]
        shown = first_few(inside)
        advice = f"this folder holds {len(inside)} of them: name one ({shown})" if inside else one_file
        raise BadFile(folder, f"no facts here: {expected}; {advice}")
    if missing and missing != ["train.jsonl", "dev.jsonl"]:
        raise BadFile(folder / missing[0], f"there is no such file; {expected}, or test.jsonl alone")
    train, dev, test = (() if file in missing else tuple(parse_facts(folder / file, columns)) for file in SPLIT_FILES)
    return SplitLines(_last_part(folder), train, dev, test)


def _last_part(path: Path) -> str:
    if path.name in ("", ".."):
        path = path.resolve()
    return path.name if path.is_dir() else path.stem


def _relations_in(folder: Path) -> list[Path]:
    """Return the relations of a set: its folders, or else its files; none if the folder is a relation itself."""
    splits = {PurePath(file).stem for file in SPLIT_FILES}
    files = [file for file in folder.glob("*") if file.suffix.lower() in SUFFIXES and file.is_file()]
    if any(file.stem in splits for file in files):
        return []
    return sorted({file.parent for name in SPLIT_FILES for file in folder.glob(f"*/{name}")}) or sorted(files)


def relations_of(source: str, data: Path | None) -> list[str]:
    """Return the names of the relations of a set (testbed:, testbed2:, trex_original, a folder of folders or of files),
    or the one that is named."""
    if source in PREFIXES:
        return [source + name for name in relation_names(source)]
    if source.startswith((*PREFIXES, HUB)):
        return [source]
    found = find(source, "facts", data_folder(data))
    is_path = found == Path(source)  # in the data folder, files are named without their ending
    return [f"{source}/{one.name if is_path else _last_part(one)}" for one in _relations_in(found)] or [source]


def short_name(source: str) -> str:
    """Return what the relation of a source is called: the last part of a name or path, without a file's ending."""
    path = PurePath(source)
    return path.stem if path.suffix.lower() in SUFFIXES else path.name


@dataclass(frozen=True)
class FactSet:
    """The relations that a name refers to."""

    name: str
    relations: tuple[SplitLines, ...]
    is_single: bool
    """Whether the name is that of one relation, not of a set."""


def read_fact_set(
    source: str,
    *,
    data: Path | None = None,
    split: SplitRule | str | None = None,
    seed: int = 0,
    columns: Columns = USUAL,
) -> FactSet:
    """Return the relations of a set (trex_original, testbed:), sorted by name, or the one relation that `source` names.

    A single file is split as `load_relation` splits it. Relations of a set have their short names (P19).
    """
    if source in PREFIXES:
        relations = {name: load_relation(source + name, split=split) for name in relation_names(source)}
        return FactSet(source, tuple(replace(relation, name=name) for name, relation in relations.items()), False)
    # Results do not name paths of this machine.
    name = (Path(source).name or source) if Path(source).exists() else source
    folder = (
        None if source.startswith((*PREFIXES, HUB)) or split is not None else find(source, "facts", data_folder(data))
    )
    if folder is None or folder.is_file():
        return FactSet(name, (_named_relation(source, columns, data, split, seed),), is_single=True)
    if inner := _relations_in(folder):
        relations_read = (
            read_split_files(one, columns) if one.is_dir() else _named_relation(one, columns, data, None, seed)
            for one in inner
        )
        return FactSet(name, tuple(relations_read), is_single=False)
    return FactSet(name, (read_split_files(folder, columns),), is_single=True)


@checked
def load_prompts(
    sources: str | Path | Template | Iterable[str | Path | Template],
    relation: Relation | str | None = None,
    *,
    data: Path | str | None = None,
) -> list[Template]:
    """Return the templates of all sources, in order.

    A source is a template or its text, a file, a name in the data folder, a folder or set of prompts with a file for
    the relation, or a testbed's single, paraphrased, mined or random prompts (testbed:mined for the relation, or
    testbed:mined/capital).
    """
    name = relation.name if isinstance(relation, Relation) else relation or ""
    templates: list[Template] = []
    if not isinstance(sources, str | Path | Template | Iterable):
        raise BadOption(f"{type(sources).__name__} holds no prompts: give a template, a file or a name, or several")
    for given in [sources] if isinstance(sources, str | Path | Template) else sources:
        if isinstance(given, Template):
            templates.append(given)
            continue
        source = str(given)
        if source.startswith(PREFIXES):
            templates += _testbed_prompts(source, name)
        elif "[X]" in source or "[Y]" in source:
            templates.append(parse_template(source))
        else:
            templates += read_templates(_prompt_file(source, name, data_folder(data)))
    return templates


def relation_label(name: str, data: Path | None = None) -> str:
    """Return a relation's label: LAMA's ("place of birth") if the data folder has it, otherwise its name in words."""
    short = PurePath(prefix_and_name(name)[1]).name
    folder = data_folder(data)
    path = None if folder is None else folder / _LAMA
    if path is not None and path.is_file():
        for number, record in read_records(path):
            if record.get("relation") == short and "label" in record:
                return text_of(path, number, record, "label")
    return " ".join(short.replace("_", " ").replace("-", " ").split())


def _prompt_file(source: str, relation: str, data: Path | None) -> Path:
    path = find(source, "prompts", data)
    if not relation or path.is_file():
        return path
    own = path / f"{PurePath(prefix_and_name(relation)[1]).name}.jsonl"
    if not own.is_file():
        raise NoPrompts(f"there is no {own.name} in {source}")
    return own


def _testbed_prompts(source: str, relation: str) -> list[Template]:
    prefix, rest = prefix_and_name(source)
    kind, _, own_relation = rest.partition("/")
    if own_relation or relation.startswith(prefix):
        return testbed_prompts(kind, prefix + own_relation if own_relation else relation)
    raise NoPrompts(
        f"{source} is for the testbed's relations: name one of them with `relation`, or write e.g. "
        f"{prefix}{kind}/{relation_names(prefix)[0]}",
        relation="--facts",
    )


def cardinalities(names: Iterable[str], data: Path | str | None = None) -> dict[str, str]:
    """Return 1-1, N-1 or N-M for relations of the testbeds, and of T-REx if the data folder has LAMA's list of them."""
    of_testbed = {prefix + one.name: one.cardinality for prefix in PREFIXES for one in relations(prefix)}
    folder = data_folder(data)
    of_lama = _lama_kinds(folder / _LAMA) if folder is not None and (folder / _LAMA).is_file() else {}
    found = {name: of_testbed.get(name) or of_lama.get(name.rpartition("/")[2]) for name in names}
    return {name: kind for name, kind in found.items() if kind is not None}


@cache
def _lama_kinds(path: Path) -> dict[str, str]:
    return {record["relation"]: record["type"] for _, record in read_records(path) if "type" in record}


# ── data sets of the Hugging Face hub ─────────────────────────────────────────────────────────────────────────────────

HUB = "hub:"


def read_hub(source: str) -> tuple[str, Any]:
    """Return the name of a data set and its rows, given hub:NAME:SPLIT, or its splits, given hub:NAME.

    NAME is that of a data set, `owner/name` or a folder on this machine; one of its configurations is named after a
    "@": hub:owner/name@config:train. SPLIT is whatever `datasets` takes, such as train[:500].
    """
    try:
        import datasets
    except ImportError:
        raise BadOption(
            f"{source}: data sets of the hub are read by `datasets`, which is not installed: pip install 'askwell[hub]'"
        ) from None
    name, _, split = source.removeprefix(HUB).partition(":")
    path, _, config = name.partition("@")
    if not path:
        raise BadOption(f"{source} names no data set: write hub:NAME:SPLIT, e.g. hub:owner/capitals:train")
    try:
        rows: Any = datasets.load_dataset(path, config or None, split=split or None)
    except Exception as error:  # datasets raises errors of many libraries
        problem = str(error).strip().splitlines() or [type(error).__name__]
        raise BadFile(source, f"datasets cannot read it: {clipped(problem[0], 300)}") from error
    only = next(iter(rows.values())) if not split and len(rows) == 1 else None
    return Path(path).name, rows if only is None else only
