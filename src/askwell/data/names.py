"""What a name such as testbed:capital, trex_original/P19 or a path stands for."""

from collections.abc import Sequence
from pathlib import Path

from askwell.data.facts import Relation
from askwell.data.read_facts import read_relation as read_relation_files
from askwell.data.split import SplitRule
from askwell.data.templates import Template
from askwell.data.templates import read_prompts as read_prompt_files
from askwell.data.testbed import PREFIX, testbed_prompts, testbed_relation
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
