"""Reads a sweep from TOML, reporting all mistakes in one message, and pairs its relations with their prompts."""

import tomllib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from askwell.data.data_folder import data_folder, find
from askwell.data.facts import Relation
from askwell.data.names import load_prompts, load_relation, relations_of
from askwell.data.split import sample
from askwell.data.templates import Template
from askwell.data.testbed import PREFIXES
from askwell.errors import AskwellError, BadFile, NoPrompts, did_you_mean
from askwell.files import read_text
from askwell.specs.sweep_spec import LMChoice, Setting, SweepSpec


def read_sweep(path: Path, instead: Mapping[str, Any] | None = None) -> SweepSpec:
    """Read the sweep that a TOML file describes; keys in `instead` override the file's."""
    try:
        table = tomllib.loads(read_text(path))
    except RecursionError:
        raise BadFile(path, "is not TOML: it is nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        raise BadFile(path, f"is not TOML: {error}") from None
    except ValueError:
        raise BadFile(path, "a number in it has thousands of digits; write a shorter one") from None
    try:
        return SweepSpec.model_validate({**table, **(instead or {})})
    except ValidationError as error:
        raise BadFile(path, "; ".join(_in_words(problem) for problem in error.errors())) from None


def _in_words(problem: Any) -> str:
    """Describe one problem, with the key as it is written in the file."""
    parts = [str(part) for part in problem["loc"]]
    if parts[:1] == ["settings"] and parts[2:3] in (["mixture"], ["training"]):
        # Settings are flat in the file; which of the two specs a key belongs to does not matter to the reader.
        del parts[2]
    key = ".".join(parts)
    if problem["type"] == "extra_forbidden":
        above = ".".join(parts[:-1])
        return f"{above + ': ' if above else ''}there is no key {parts[-1]!r}{did_you_mean(parts[-1], _keys_at(parts))}"
    if problem["type"] == "missing":
        return f"{key} is missing"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{key}: {message}" if key else message


def _keys_at(parts: list[str]) -> tuple[str, ...]:
    table: type[BaseModel] = {"lms": LMChoice, "settings": Setting}.get(parts[0], SweepSpec)
    return tuple(table.model_fields)


_TESTBEDS = {prefix.removesuffix(":"): prefix for prefix in PREFIXES}


@dataclass(frozen=True)
class GridCell:
    """A relation, and one named set of prompts for it."""

    relation: Relation
    prompts: str
    templates: tuple[Template, ...]


@contextmanager
def naming(file: Path, key: str) -> Generator[None]:
    """Make errors raised in the block name the sweep's file and the key that caused them."""
    try:
        yield
    except AskwellError as error:
        raise BadFile(file, f"{key}: {error}") from error


def cells_of(sweep: SweepSpec, file: Path, data: Path | None) -> tuple[list[GridCell], list[str]]:
    """Return the cells of a sweep, and the pairs that do not exist, each with the reason."""
    data = data_folder(data or (Path(sweep.data) if sweep.data else None))
    relations = _relations(sweep, file, data)
    try:
        sweep.check_size(len(relations))
    except ValueError as error:
        raise BadFile(file, str(error)) from None
    cells: list[GridCell] = []
    without: list[str] = []
    for name, sources in sweep.prompts.items():
        found = len(cells)
        for relation in relations:
            with naming(file, f"prompts.{name}"):
                try:
                    cells.append(GridCell(relation, name, tuple(load_prompts(sources, relation=relation, data=data))))
                except NoPrompts as missing:
                    without.append(f"{relation.name} has no {name} prompts: {missing}")
        if found == len(cells):
            raise BadFile(file, f"prompts.{name}: there are none for any relation of the sweep ({without[-1]})")
    for relation in relations:
        if all(cell.relation is not relation for cell in cells):
            raise BadFile(file, f"facts: {relation.name} has no prompts under any name")
    return cells, without


def _relations(sweep: SweepSpec, file: Path, data: Path | None) -> list[Relation]:
    relations: dict[str, Relation] = {}
    for source in sweep.facts:
        with naming(file, "facts"):
            names = relations_of(_TESTBEDS.get(source, source), data)
            read = [_sampled(name, sweep, data) for name in names]
        for relation in read:
            same = relations.setdefault(relation.name, relation)
            if same.digest != relation.digest:
                raise BadFile(file, f"facts: two different relations are called {relation.name}; rename one")
    return list(relations.values())


def _sampled(name: str, sweep: SweepSpec, data: Path | None) -> Relation:
    # The testbeds and folders have their own splits.
    is_split = name.startswith(PREFIXES) or find(name, "facts", data).is_dir()
    own: dict[str, str | None] = {"split": sweep.split_by, "ratio": sweep.split_ratio, "x": sweep.x, "y": sweep.y}
    relation = load_relation(name, data=data, seed=sweep.facts_seed, **({} if is_split else own))
    sizes = {"train": sweep.train_facts, "dev": sweep.dev_facts, "test": sweep.test_facts}
    return sample(relation, **sizes, seed=sweep.facts_seed)
