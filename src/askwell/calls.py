"""Calls of public functions: a call that does not fit is refused in one sentence that says what to write instead."""

import functools
import inspect
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

from askwell.errors import BadOption, did_you_mean

_Call = TypeVar("_Call", bound=Callable[..., Any])

_WAYS = {
    "FrozenLM": ("load_lm", "loads one"),
    "Relation": ("read_relation", "makes one from a name, a file, pairs, a dictionary or a frame"),
    "Mixture": ("Mixture.from_pretrained", "loads a saved one, and askwell.Mixture(lm, templates) builds a new one"),
    "RunSpec": ("build_run_spec", "makes one"),
    "Examination": ("examine", "makes one"),
}
"""How to get the objects that functions need: a function of askwell, and what it does."""
# Wider than the annotation where Python itself is: whole numbers of numpy, a path of another library.
_WIDER: dict[type, tuple[type, ...]] = {int: (Integral,), float: (Real,), Path: (os.PathLike,)}
_NAMES = {int: "a whole number", float: "a number", str: "a string", bool: "True or False", Path: "a path"}


def checked(function: _Call) -> _Call:
    """The function, whose calls raise BadOption if their arguments do not fit its signature.

    Names and numbers of arguments are checked, and the types of those whose annotation is a class or several classes.
    A class is known by its name, so that a function can be annotated with a class of a room that imports it.
    """
    return _checked(function, "")


def checked_or(instead: str) -> Callable[[_Call], _Call]:
    """`checked`, for a function or class that is easily mistaken for another one, with a message that names that."""

    def of(function: _Call) -> _Call:
        if not isinstance(function, type):
            return _checked(function, instead)
        made: Any = function
        made.__init__ = _checked(made.__init__, instead)
        return made

    return of


def _checked(function: _Call, instead: str) -> _Call:
    signature = inspect.signature(function)
    name = getattr(function, "__qualname__", "").removesuffix(".__init__")
    classes = {one.name: found for one in signature.parameters.values() if (found := _classes(one.annotation))}

    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        try:
            given = signature.bind(*arguments, **options).arguments
        except TypeError:
            raise BadOption(instead or _misfit(name, signature, arguments, options)) from None
        for parameter in (name for name in classes if name in given):
            if not any(_is_one(given[parameter], one) for one in classes[parameter]):
                raise BadOption(instead or _wrong_type(name, signature, parameter, given, classes[parameter]))
        return function(*arguments, **options)

    return typing.cast("_Call", called)


def _classes(annotation: Any) -> tuple[type | str, ...]:
    """The classes that an annotation allows, those imported for type checkers alone by name; empty if it says more."""
    if annotation in (Any, inspect.Parameter.empty):
        return ()
    if annotation is None or (isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias)):
        return (annotation or types.NoneType,)
    if isinstance(annotation, str):
        return (annotation,) if annotation.isidentifier() else ()
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        parts = [_classes(part) for part in typing.get_args(annotation)]
        return tuple(one for part in parts for one in part) if all(parts) else ()
    return ()


def _is_one(value: Any, wanted: type | str) -> bool:
    if isinstance(wanted, str):
        return any(base.__name__ == wanted for base in type(value).__mro__)
    return isinstance(value, (wanted, *_WIDER.get(wanted, ())))


def _misfit(name: str, signature: inspect.Signature, arguments: Sequence[Any], options: Mapping[str, Any]) -> str:
    """What is wrong with the names or the number of arguments."""
    parameters = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    by_position = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    by_name = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    filled = by_position[: len(arguments) - ("self" in signature.parameters) - ("cls" in signature.parameters)]
    needed = [one.name for one in parameters if one.default is one.empty and one.name in by_position]
    missing = [one for one in needed if one not in (*filled, *options)]
    takes_fields = any(one.kind is one.VAR_KEYWORD for one in parameters)  # those of a spec, which checks them itself
    for option in options:
        if option in filled:
            return f"{name} was given `{option}` twice: by position and by name"
        meant = did_you_mean(option, missing if takes_fields else [*by_position[len(filled) :], *by_name])
        if option not in signature.parameters and (not takes_fields or meant.startswith("; did you mean")):
            return f"{name} has no option {option!r}{meant}"
    if missing:
        example = ", ".join(needed)
        return f"{name} needs `{missing[0]}`: write {name}({example}){_way(missing[0], parameters)}"
    more = f"; give the others by name: {', '.join(by_name)}" if by_name else ""
    return f"{name} takes only {', '.join(by_position) or 'nothing'} by position{more}"


def _way(missing: str, parameters: Sequence[inspect.Parameter]) -> str:
    """How to get a missing argument; empty if it is not one of ours."""
    (annotation,) = (one.annotation for one in parameters if one.name == missing)
    for one in _classes(annotation):
        if (kind := _name_of(one)) in _WAYS:
            function, does = _WAYS[kind]
            return f"; askwell.{function} {does}"
    return ""


def _wrong_type(
    name: str, signature: inspect.Signature, parameter: str, given: Mapping[str, Any], wanted: Sequence[type | str]
) -> str:
    value = given[parameter]
    ours = next((kind for one in wanted if (kind := _name_of(one)) in _WAYS), None)
    if ours is None:
        allowed = [_NAMES.get(one) or _article(one.__name__) for one in wanted if isinstance(one, type)]
        named = " or ".join(dict.fromkeys(one for one in allowed if one != "a NoneType"))
        fields = "; its fields can also be given by name" if named.endswith("Spec") else ""
        return f"{name}: `{parameter}` must be {named}, not {_shown(value)}{fields}"
    kind = _article(type(value).__name__)
    if any(_is_one(other, ours) for other in given.values()):
        order = ", ".join(one for one in signature.parameters if one in given and one != "self")
        return f"{name}: `{parameter}` must be {_article(ours)}, not {kind}; the order is {name}({order})"
    function, does = _WAYS[ours]
    if isinstance(value, str | Path) and ours in ("FrozenLM", "Relation", "Mixture"):
        return f"{name}: `{parameter}` must be {_article(ours)}: write askwell.{function}({str(value)!r})"
    return f"{name}: `{parameter}` must be {_article(ours)}, not {kind}: askwell.{function} {does}"


def _name_of(one: type | str) -> str:
    return one if isinstance(one, str) else one.__name__


def _shown(value: Any) -> str:
    plain = isinstance(value, str | int | float | bool | None)
    return repr(value)[:60] if plain else _article(type(value).__name__)


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "AEIOUaeiou" else f"a {name}"
