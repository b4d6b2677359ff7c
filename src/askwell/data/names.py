"""What a name stands for: testbed:capital, trex_original/P19 in the data folder, or a path."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from askwell.data.facts import SPLIT_FILES, Relation
from askwell.data.read_facts import SplitLines, read_set, read_split_files
from askwell.data.read_facts import read_relation as read_relation_files
from askwell.data.sources import data_folder, find
from askwell.data.split import SplitRule
from askwell.data.templates import Template
from askwell.data.templates import read_prompts as read_prompt_files
from askwell.data.testbed import PREFIX, relation_names, testbed_prompts, testbed_relation
from askwell.errors import BadOption


def read_relation(
    source: str | Path, *, data: Path | None = None, split: SplitRule | str | None = None, seed: int = 0
) -> Relation:
    """The relation of a name: testbed:capital, trex_original/P19 in the data folder, a folder or a file.

    A folder holds train.jsonl, dev.jsonl and test.jsonl; a single .jsonl, .csv or .tsv file is split ("random" is
    80-10-10, "distinct-y" keeps each y in one split), by `seed`.
    """
    name = str(source)
    if not name.startswith(PREFIX):
        return read_relation_files(source, data=data, split=split, seed=seed)
    if split is not None:
        raise BadOption(f"{name} has splits of its own; leave out the rule {split!r}")
    return testbed_relation(name.removeprefix(PREFIX))


@dataclass(frozen=True)
class FactSet:
    """The relations that a name stands for."""

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
        lines = [replace(SplitLines.of(relation), name=name) for name, relation in relations.items()]
        return FactSet(source, tuple(lines), is_single=False)
    # A path of the machine does not get into results.
    name = (Path(source).name or source) if Path(source).exists() else source
    if not source.startswith(PREFIX) and split is None:
        folder = find(source, "facts", data_folder(data))
        if any((folder / file).exists() for file in SPLIT_FILES):
            return FactSet(name, (read_split_files(folder),), is_single=True)
        if relations_inside := read_set(folder):
            return FactSet(name, tuple(relations_inside), is_single=False)
    relation = read_relation(source, data=data, split=split, seed=seed)
    return FactSet(name, (SplitLines.of(relation),), is_single=True)


def read_prompts(
    sources: str | Sequence[str], *, relation: Relation | str | None = None, data: Path | None = None
) -> list[Template]:
    """The templates of all sources in their order: a template's text, a file, a name in the data folder, or the
    testbed's single, paraphrased or mined ones, which need to know the relation: testbed:mined, or
    testbed:mined/capital.
    """
    templates: list[Template] = []
    for source in [sources] if isinstance(sources, str) else sources:
        if source.startswith(PREFIX):
            templates += _testbed_prompts(source, relation.name if isinstance(relation, Relation) else relation)
        else:
            templates += read_prompt_files(source, data=data)
    return templates


def _testbed_prompts(source: str, relation: str | None) -> Sequence[Template]:
    kind, _, own_relation = source.removeprefix(PREFIX).partition("/")
    name = own_relation or (relation or "").removeprefix(PREFIX)
    if not name or (not own_relation and not str(relation).startswith(PREFIX)):
        raise BadOption(
            f"{source} does not say of which relation: name one of the testbed with --facts, or write e.g. "
            f"{PREFIX}{kind}/capital"
        )
    return testbed_prompts(kind, name)
