"""What is made once for all cases: whole LMs, and what cyclopts knows about a command's options."""

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pydantic
import pytest
from cyclopts import App
from cyclopts.argument import ArgumentCollection
from fuzz.kinds import World

_LMS: dict[tuple[Any, ...], Any] = {}
_USED_BY = (
    "askwell.lms.load", "askwell.cli.running", "askwell.mixture.save", "askwell.runs.plan", "askwell.runs.sources",
    "askwell.runs.score_source", "askwell.runs.diff_lms",
    "askwell.runs.worker", "askwell.baselines.fine_tuning",
)  # fmt: skip


def load_whole_lms_once(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """Lets commands have the world's own LMs, which nothing has spoilt, as they were loaded for an earlier case."""
    import askwell.lms.load

    load = askwell.lms.load.load_lm
    whole = (world.folder / "lms", "testbed:")

    def load_once(name: Any, tokenizer: Any = None, **options: Any) -> Any:
        if tokenizer is not None or not str(name).startswith(tuple(map(str, whole))):
            return load(name, tokenizer, **options)
        key = (str(name), *sorted((option, str(value)) for option, value in options.items()))
        if key not in _LMS:
            _LMS[key] = load(name, tokenizer, **options)
        return _LMS[key]

    for module in _USED_BY:
        monkeypatch.setattr(f"{module}.load_lm", load_once)


def parse_options_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets cyclopts look at the signature of a command once, and pydantic at a type."""
    assemble = App.assemble_argument_collection
    known: dict[tuple[Any, ...], ArgumentCollection] = {}

    def assembled(app: App, **options: Any) -> ArgumentCollection:
        key = (id(app), *sorted((option, str(value)) for option, value in options.items()))
        if key not in known:
            known[key] = assemble(app, **options)
        return _without_tokens(known[key])

    adapters: Callable[..., Any] = cache(pydantic.TypeAdapter)

    def adapter(kind: Any, **options: Any) -> Any:
        try:
            return adapters(kind, **options)
        except TypeError:  # not hashable
            return _TYPE_ADAPTER(kind, **options)

    monkeypatch.setattr(App, "assemble_argument_collection", assembled)
    monkeypatch.setattr(pydantic, "TypeAdapter", adapter)


_TYPE_ADAPTER = pydantic.TypeAdapter


def _without_tokens(collection: ArgumentCollection) -> ArgumentCollection:
    """A copy of the arguments of a command, none of which has been given."""
    copies = {id(argument): copy.copy(argument) for argument in collection}
    for argument in copies.values():
        argument.tokens = []
        argument.children = ArgumentCollection(copies[id(child)] for child in argument.children)
    return ArgumentCollection(copies[id(argument)] for argument in collection)
