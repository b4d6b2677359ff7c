"""The types and shapes of the whole package, checked while its tests run.

Types are checked at every call. A check of shapes takes longer than most of the functions that have them, and a
training run calls these thousands of times with shapes of the same few kinds. So in each test, shapes are checked at
the first calls of a function and at every 16th of the others; with ASKWELL_TEST_FULL=1, at every call.
"""

import functools
import os
import typing
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype
from beartype.claw import beartype_package
from jaxtyping import AbstractArray, install_import_hook
from jaxtyping import _decorator as jaxtyping_decorator

FULL = bool(os.environ.get("ASKWELL_TEST_FULL"))
FIRST, EVERY = 16, 16
_calls: dict[Callable[..., Any], int] = {}
"""How often a function with shapes was called in this test."""


def check_types() -> None:
    """Check the types and shapes of all modules of the package that are imported from now on."""
    found = find_spec("askwell")
    assert found is not None
    assert found.origin is not None
    root = Path(found.origin).parent
    sources = {path: path.read_text(encoding="utf-8") for path in root.rglob("*.py")}
    # beartype by itself refuses annotations that stand for what is imported for type checkers alone.
    shaped = [path for path, text in sources.items() if "jaxtyping" in text or "TYPE_CHECKING" in text]
    # What `calls.checked` wraps is checked by itself, and the wrapper has its annotations.
    unchecked = ("askwell.errors",)
    beartype_package("askwell", conf=BeartypeConf(claw_is_pep526=False, claw_skip_package_names=unchecked))
    modules = [".".join(path.relative_to(root.parent).with_suffix("").parts) for path in shaped]
    # jaxtyping has no setting for which functions are checked, and when; it calls itself for methods and properties.
    sparing: Any = functools.partial(_sparingly, jaxtyping_decorator.jaxtyped)
    jaxtyping.jaxtyped = jaxtyping_decorator.jaxtyped = sparing
    install_import_hook(modules, "beartype.beartype")


def a_test_begins() -> None:
    """Shapes are checked at the first calls again."""
    _calls.clear()


def _sparingly(jaxtyped: Callable[..., Any], *of: Any, typechecker: Any) -> Any:
    """jaxtyping's decorator, which is told what it decorates, or nothing yet."""
    if not of or not isinstance(of[0], FunctionType):
        return jaxtyped(*of, typechecker=typechecker)
    function = of[0]
    try:
        hints, check = typing.get_type_hints(function), beartype
    except NameError:  # of what is imported for type checkers alone: jaxtyping checks the other types
        hints, check = function.__annotations__, functools.partial(jaxtyped, typechecker=typechecker)
    if not any(_has_shape(hint) for hint in hints.values()):
        return check(function)
    checked = jaxtyped(function, typechecker=typechecker)
    if FULL:
        return checked

    @functools.wraps(function)
    def checked_at_times(*arguments: Any, **options: Any) -> Any:
        calls = _calls[function] = _calls.get(function, 0) + 1
        if calls > FIRST and calls % EVERY:
            return function(*arguments, **options)
        return checked(*arguments, **options)

    return checked_at_times


def _has_shape(hint: Any) -> bool:
    if isinstance(hint, str):
        return "[Tensor, " in hint or "[np.ndarray, " in hint
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(_has_shape(part) for part in typing.get_args(hint))
