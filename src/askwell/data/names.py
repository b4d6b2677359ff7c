"""What a name refers to: testbed:capital, trex_original/P19 in the data folder, a path, or a whole set of relations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from askwell.data.facts import SPLIT_FILES, Relation, SplitLines
from askwell.data.read_facts import SUFFIXES, parse_facts
from askwell.data.records import read_records, text_of
from askwell.data.sources import data_folder, find
from askwell.data.split import SplitRule, split_facts
from askwell.data.templates import Template, parse_template, read_templates
from askwell.data.testbed import PREFIX, relation_names, testbed_prompts, testbed_relation
from askwell.errors import BadFile, BadOption, NoPrompts, UserMistake


def read_relation(
    source: str | Path, *, data: Path | None = None, split: SplitRule | str | None = None, seed: int = 0
) -> Relation:
    """The relation of a name: testbed:capital, trex_original/P19 in the data folder, a folder or a file.

    A folder holds train.jsonl, dev.jsonl and test.jsonl; a single .jsonl, .csv or .tsv file is split ("random" is
    80-10-10, "distinct-y" keeps each y in one split), by `seed`.
    """
    if str(source).startswith(PREFIX):
        if split is not None:
            raise BadOption(f"{source} has splits of its own; leave out the rule {split!r}")
        return testbed_relation(str(source))
    path = find(str(source), "facts", data_folder(data))
    # A path of the machine must not get into results: the name is that in the data folder, or the path's last part.
    name = _last_part(path) if path == Path(source) else PurePath(source).as_posix()
    if path.is_file():
        return _split_file(path, name, split or "random", seed)
    if split is not None:
        raise BadOption(f"{source} is a folder with splits of its own, so the rule {split!r} cannot be applied to it")
    return Relation.of(name, *read_split_files(path).splits.values())


def _split_file(path: Path, name: str, rule: SplitRule | str, seed: int) -> Relation:
    facts = parse_facts(path)
    try:
        train, dev, test = split_facts(facts, rule, seed)
    except BadOption:
        raise
    except UserMistake as error:
        raise BadFile(path, str(error)) from error
    return Relation.of(name, train, dev, test, removed=len(facts) - len(train) - len(dev) - len(test))


def read_split_files(folder: Path) -> SplitLines:
    """The relation whose splits are in a folder. It is not sorted: which y comes first in train's file decides ties."""
    missing = [file for file in SPLIT_FILES if not (folder / file).is_file()]
    one_file = f"a single file of facts ends in {', '.join(SUFFIXES)}"
    expected = f"a folder of facts has {', '.join(SPLIT_FILES)}"
    if len(missing) == len(SPLIT_FILES):
        inside = [inner.name for inner in _relation_folders(folder)]
        shown = ", ".join(inside[:3]) + (", …" if len(inside) > 3 else "")
        advice = f"this folder holds {len(inside)} of them: name one ({shown})" if inside else one_file
        raise BadFile(folder, f"no facts here: {expected}; {advice}")
    if missing:
        raise BadFile(folder / missing[0], f"there is no such file; {expected}")
    train, dev, test = (tuple(parse_facts(folder / file)) for file in SPLIT_FILES)
    return SplitLines(_last_part(folder), train, dev, test)


def _last_part(path: Path) -> str:
    if path.name in ("", ".."):
        path = path.resolve()
    return path.name if path.is_dir() else path.stem


def _relation_folders(folder: Path) -> list[Path]:
    """The folders of the relations of a set; none if the folder is a relation itself."""
    if any((folder / file).exists() for file in SPLIT_FILES):
        return []
    return sorted({file.parent for name in SPLIT_FILES for file in folder.glob(f"*/{name}")})


def relations_of(source: str, data: Path | None) -> list[str]:
    """The names of the relations of a set (testbed:, trex_original, a folder of folders), or the one that is named."""
    if source == PREFIX:
        return [PREFIX + name for name in relation_names()]
    inner = [] if source.startswith(PREFIX) else _relation_folders(find(source, "facts", data_folder(data)))
    return [f"{source}/{folder.name}" for folder in inner] or [source]


@dataclass(frozen=True)
class FactSet:
    """The relations that a name refers to."""

    name: str
    relations: tuple[SplitLines, ...]
    is_single: bool
    """Whether the name is that of one relation, not of a set."""


def read_fact_set(
    source: str, *, data: Path | None = None, split: SplitRule | str | None = None, seed: int = 0
) -> FactSet:
    """The relations of a set (trex_original, testbed:), sorted by name, or the one relation that `source` names.

    A single file is split as `read_relation` splits it. Relations of a set have their short names (P19).
    """
    if source == PREFIX:
        relations = {name: read_relation(PREFIX + name, split=split) for name in relation_names()}
        return FactSet(source, tuple(replace(relation, name=name) for name, relation in relations.items()), False)
    # A path of the machine does not get into results.
    name = (Path(source).name or source) if Path(source).exists() else source
    folder = None if source.startswith(PREFIX) or split is not None else find(source, "facts", data_folder(data))
    if folder is None or folder.is_file():
        return FactSet(name, (read_relation(source, data=data, split=split, seed=seed),), is_single=True)
    if inner := _relation_folders(folder):
        return FactSet(name, tuple(map(read_split_files, inner)), is_single=False)
    return FactSet(name, (read_split_files(folder),), is_single=True)


def read_prompts(
    sources: str | Sequence[str], *, relation: Relation | str | None = None, data: Path | None = None
) -> list[Template]:
    """The templates of all sources in their order.

    A source is a template's text, a file, a name in the data folder, a folder or set of prompts, of which the relation
    takes the file of its name, or the testbed's single, paraphrased, mined or random prompts (testbed:mined for the
    relation, or testbed:mined/capital).
    """
    name = relation.name if isinstance(relation, Relation) else relation or ""
    templates: list[Template] = []
    for source in [sources] if isinstance(sources, str) else sources:
        if source.startswith(PREFIX):
            templates += _testbed_prompts(source, name)
        elif "[X]" in source or "[Y]" in source:
            templates.append(parse_template(source))
        else:
            templates += read_templates(_prompt_file(source, name, data_folder(data)))
    return templates


def relation_label(name: str, data: Path | None = None) -> str:
    """A relation's label: LAMA's ("place of birth") where the data folder has it, or else its name in words."""
    short = PurePath(name.removeprefix(PREFIX)).name
    folder = data_folder(data)
    path = None if folder is None else folder / "meta" / "lama_relations.jsonl"
    if path is not None and path.is_file():
        for number, record in read_records(path):
            if record.get("relation") == short and "label" in record:
                return text_of(path, number, record, "label")
    return " ".join(short.replace("_", " ").replace("-", " ").split())


def _prompt_file(source: str, relation: str, data: Path | None) -> Path:
    path = find(source, "prompts", data)
    if not relation or path.is_file():
        return path
    own = path / f"{PurePath(relation.removeprefix(PREFIX)).name}.jsonl"
    if not own.is_file():
        raise NoPrompts(f"there is no {own.name} in {source}")
    return own


def _testbed_prompts(source: str, relation: str) -> list[Template]:
    kind, _, own_relation = source.removeprefix(PREFIX).partition("/")
    if own_relation or relation.startswith(PREFIX):
        return testbed_prompts(kind, own_relation or relation)
    raise NoPrompts(
        f"{source} is for the testbed's relations: name one of them with --facts, or write e.g. {PREFIX}{kind}/capital"
    )
