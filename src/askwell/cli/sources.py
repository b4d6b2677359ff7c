"""From options to a mixture: a saved one, or untuned prompts on an LM.

The x's of a file that is to be asked about.

What `askwell evaluate` is to evaluate: pairs of a mixture and a relation, made one after the other.
"""

import csv
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from askwell.cli.terminal import note, note_left_out_prompts
from askwell.data.facts import Relation
from askwell.data.names import read_prompts, read_relation
from askwell.data.sources import data_folder, find
from askwell.data.split import SplitRule
from askwell.data.testbed import PREFIX
from askwell.errors import BadFile, BadOption, NothingLeft
from askwell.files import read_text
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import Precision, load_lm
from askwell.mixture.description import Description
from askwell.mixture.mixture import Mixture
from askwell.mixture.save import lm_source, load_mixture, read_description
from askwell.specs.mixture import MixtureSpec
from askwell.training.loop import available_threads


def set_threads(threads: int | None) -> None:
    """Lets torch use so many CPU threads; by default what OMP_NUM_THREADS says, or all that there are."""
    if threads is not None and threads < 1:
        raise BadOption(f"--threads {threads}: at least one is needed")
    if threads is not None or "OMP_NUM_THREADS" not in os.environ:  # torch has heeded it itself
        torch.set_num_threads(threads or available_threads())


def saved_mixture(
    folder: str, lm: str | FrozenLM | None, *, revision: str | None, device: str | None, dtype: Precision
) -> Mixture:
    """A saved mixture on its LM; `lm` says where the LM is to be had, if not where it was."""
    if isinstance(lm, FrozenLM):
        return load_mixture(folder, lm)
    description = read_description(folder)
    source, stored_revision = lm or lm_source(folder, description), description.base_lm.revision
    if source is None:
        raise BadOption(f"{folder} was learned on {description.base_lm.name}; say where that LM is with --lm")
    loaded = load_lm(source, revision=revision or (stored_revision if lm is None else None), device=device, dtype=dtype)
    return load_mixture(folder, loaded)


def untuned_mixture(
    lm: FrozenLM, prompts: list[str], spec: MixtureSpec, relation: Relation | str | None, data: Path | None
) -> Mixture:
    """Prompts as they stand, with a note of those that the LM cannot use."""
    mixture = Mixture(lm, read_prompts(prompts, relation=relation, data=data), spec)
    note_left_out_prompts(mixture)
    return mixture


_COLUMNS = ("x", "sub_label", "sub")


def read_xs(path: Path, column: str | None) -> list[str]:
    """One x for each line of text, or for each row of a table, in the file's order."""
    readers = {".csv": _read_table, ".tsv": _read_table, ".jsonl": _read_jsonl}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        if column:
            raise BadOption(f"--column goes with a .csv, .tsv or .jsonl file, and {path} is read as lines of text")
        xs = [line.strip() for line in read_text(path).split("\n") if line.strip()]
    else:
        xs = reader(path, column)
    if not xs:
        raise BadFile(path, "holds nothing to ask about")
    return xs


def _read_jsonl(path: Path, column: str | None) -> list[str]:
    xs = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise BadFile(path, f"broken JSON: {error.msg} at column {error.colno}", number) from None
            fields = record if isinstance(record, dict) else {}
            xs.append(_checked(path, number, fields.get(_choose(path, number, fields, column))))
    return xs


def _read_table(path: Path, column: str | None) -> list[str]:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    rows = csv.DictReader(read_text(path).splitlines(keepends=True), delimiter=delimiter)
    name = _choose(path, 1, dict.fromkeys(rows.fieldnames or ()), column)
    return [_checked(path, rows.line_num, row[name]) for row in rows]


def _choose(path: Path, line: int, fields: dict[str, object], column: str | None) -> str:
    for name in [column] if column else _COLUMNS:
        if name in fields:
            return name
    wanted = f"no column {column!r}" if column else f"none of the columns {', '.join(_COLUMNS)}; name one with --column"
    raise BadFile(path, f"{wanted}; there are: {', '.join(fields) or 'none'}", line)


def _checked(path: Path, line: int, value: object) -> str:
    if not isinstance(value, str | int | float) or not str(value).strip():
        raise BadFile(path, "x is empty or no text", line)
    return str(value).strip()


@dataclass(frozen=True)
class Job:
    """A mixture, and the relation to ask it about."""

    mixture: Mixture
    relation: Relation


def saved_jobs(
    folders: Sequence[str],
    facts: list[str] | None,
    lm: str | None,
    data: Path | None,
    split_by: SplitRule | None,
    loading: dict[str, Any],
) -> Iterator[Job]:
    """Saved mixtures, each with its own relation; an LM that several were learned on is loaded once."""
    if facts is not None and len(facts) != len(folders):
        raise BadOption(f"--facts is given {len(facts)} times for {len(folders)} mixtures; give one for each, or none")
    descriptions = [read_description(folder) for folder in folders]
    sources = facts or [_recorded_relation(folder, known) for folder, known in zip(folders, descriptions, strict=True)]
    relations = [
        read_relation(
            source,
            data=data,
            split=split_by or cast("SplitRule | None", description.about.split_by),
            seed=description.mixture_spec.seed,
        )
        for source, description in zip(sources, descriptions, strict=True)
    ]
    loaded = None
    for folder, description, relation in zip(folders, descriptions, relations, strict=True):
        if loaded is None or description.base_lm != loaded.identity:
            mixture = saved_mixture(folder, lm, **loading)
        else:
            mixture = saved_mixture(folder, loaded, **loading)
        loaded = mixture.lm
        if description.about.relation_sha256 not in (None, relation.digest):
            note(
                f"WARNING: {relation.name} is not the relation, or not the split, that {folder} was learned from; "
                "it may have been trained on these very facts"
            )
        yield Job(mixture, relation)


def untuned_jobs(
    prompts: list[str],
    facts: list[str] | None,
    lm: str | None,
    spec: MixtureSpec,
    data: Path | None,
    split_by: SplitRule | None,
    loading: dict[str, Any],
) -> Iterator[Job]:
    """Untuned prompts of one relation, or of each relation of a folder of them."""
    if lm is None or not facts:
        raise BadOption("untuned prompts need --lm and --facts")
    pairs = [pair for source in facts for pair in _relations_of(source, prompts, data)]
    relations = [(read_relation(name, data=data, split=split_by, seed=spec.seed), sources) for name, sources in pairs]
    loaded = load_lm(lm, **loading)
    usable = 0
    for relation, sources in relations:
        try:
            mixture = untuned_mixture(loaded, sources, spec, relation, data)
        except NothingLeft as nothing:
            if len(relations) == 1:
                raise
            note(f"{relation.name} is left out: {nothing}")
            continue
        usable += 1
        yield Job(mixture, relation)
    if not usable:
        raise NothingLeft("relations", {"no prompt can be used by the LM": len(relations)})


def _relations_of(source: str, prompts: list[str], data: Path | None) -> list[tuple[str, list[str]]]:
    """The relation that `source` names with its prompts, or each relation of a folder with the prompts of its name."""
    data = data_folder(data)
    if source.startswith(PREFIX):
        return [(source, prompts)]
    folder = find(source, "facts", data)
    inner = sorted(path.parent.name for path in folder.glob("*/test.jsonl")) if folder.is_dir() else []
    if not inner or (folder / "test.jsonl").exists():
        return [(source, prompts)]
    pairs = []
    for name in inner:
        sources = [str(Path(prompt) / name) for prompt in prompts]
        try:
            paths = [str(_prompt_file(prompt, data)) for prompt in sources]
        except BadFile as missing:
            note(f"{source}/{name} is left out: {missing}")
            continue
        pairs.append((f"{source}/{name}", paths))
    if not pairs:
        raise BadOption(f"no relation of {source} has a prompt file in {', '.join(prompts)}")
    return pairs


def _prompt_file(name: str, data: Path | None) -> Path:
    with_ending = Path(f"{name}.jsonl")
    return with_ending if with_ending.is_file() else find(name, "prompts", data)


def _recorded_relation(folder: str, description: Description) -> str:
    name = description.about.relation
    if name is None:
        raise BadOption(f"{folder} is untuned: say with --facts which relation to ask about")
    if name.startswith(PREFIX):
        return name
    try:
        find(name, "facts", data_folder(None))
    except BadFile:
        raise BadOption(f"{folder} was learned from {name}; say with --facts where its facts are") from None
    return name
