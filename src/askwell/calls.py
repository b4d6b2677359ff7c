"""Calls of public functions: a call that does not fit is refused in one sentence that says what to write instead."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar, cast

from askwell.errors import BadOption, did_you_mean

_Call = TypeVar("_Call", bound=Callable[..., Any])

_MADE_BY = {
    "FrozenLM": ("load_lm", "loads one"),
    "Relation": ("load_relation", "makes one from a name, a file, pairs, a dictionary or a frame"),
    "Mixture": ("Mixture.from_pretrained", "loads a saved one, and askwell.Mixture(lm, templates) builds a new one"),
    "RunSpec": ("build_run_spec", "makes one"),
}
"""How to get the objects that functions need: a function of askwell, and what it does."""
_PLAIN = {"int": "a whole number", "float": "a number", "str": "a string", "bool": "True or False", "Path": "a path"}


def checked(function: _Call, instead: str = "") -> _Call:
    """Return the function, whose calls raise BadOption if the names, number or classes of arguments do not fit.

    `instead` is the message for a function or class that is easily mistaken for another one.
    """
    made: Any = function
    if isinstance(function, type):
        made.__init__ = checked(made.__init__, instead)
        return function
    signature = inspect.signature(function)
    name = made.__qualname__.removesuffix(".__init__")
    wanted = {one.name: classes for one in signature.parameters.values() if (classes := _classes(one.annotation))}

    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        try:
            given = signature.bind(*arguments, **options).arguments
        except TypeError as error:
            raise BadOption(instead or _misfit(name, signature, arguments, options, str(error))) from None
        for parameter, classes in wanted.items():
            if parameter in given and not _is_one(given[parameter], classes):
                raise BadOption(instead or _wrong_class(name, parameter, given, classes))
        return function(*arguments, **options)

    return cast("_Call", called)


def checked_or(instead: str) -> Callable[[_Call], _Call]:
    """Return `checked` with a message of its own."""
    return functools.partial(checked, instead=instead)


def _classes(annotation: Any) -> list[str]:
    """Return the names of the classes that an annotation allows: some are imported for type checkers alone."""
    names = [part.rpartition(".")[2] for part in inspect.formatannotation(annotation).strip("'").split(" | ")]
    return names if all(name.isidentifier() for name in names) and not {"Any", "_empty"} & {*names} else []


def _is_one(value: Any, classes: Sequence[str]) -> bool:
    own = {base.__name__ for base in type(value).__mro__} | ({"None"} if value is None else set())
    # Python itself takes whole numbers of numpy, and paths of other libraries.
    wider = {"int": Integral, "float": Real, "Path": os.PathLike}
    return not own.isdisjoint(classes) or any(isinstance(value, wider[name]) for name in classes if name in wider)


def _misfit(
    name: str, signature: inspect.Signature, arguments: Sequence[Any], options: Mapping[str, Any], problem: str
) -> str:
    """Return what is wrong with the names or the number of arguments, beginning from what Python calls the problem."""
    own = {name: one for name, one in signature.parameters.items() if name not in ("self", "cls")}
    by_position = [name for name, one in own.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    by_name = [name for name, one in own.items() if one.kind is one.KEYWORD_ONLY]
    free = by_position[len(arguments) - (len(signature.parameters) - len(own)) :] + by_name
    missing = problem.split("'")[1] if problem.startswith("missing") else None
    takes_fields = any(one.kind is one.VAR_KEYWORD for one in own.values())  # those of a spec, which checks them itself
    for option in (option for option in options if option not in own):
        meant = did_you_mean(option, [missing or ""] if takes_fields else free)
        if not takes_fields or meant.startswith("; did you mean"):
            return f"{name} has no option {option!r}{meant}"
    if missing is not None:
        needed = ", ".join(name for name in by_position if own[name].default is inspect.Parameter.empty)
        ways = [_MADE_BY[one] for one in _classes(own[missing].annotation) if one in _MADE_BY]
        get = f"; askwell.{ways[0][0]} {ways[0][1]}" if ways else ""
        return f"{name} needs `{missing}`: write {name}({needed}){get}"
    if "positional" in problem:
        more = f"; give the others by name: {', '.join(by_name)}" if by_name else ""
        return f"{name} takes only {', '.join(by_position) or 'nothing'} by position{more}"
    return f"{name}: {problem}"


def _wrong_class(name: str, parameter: str, given: Mapping[str, Any], classes: Sequence[str]) -> str:
    """Return what is wrong with the class of an argument."""
    value, kind = given[parameter], _article(type(given[parameter]).__name__)
    ours = next((one for one in classes if one in _MADE_BY), None)
    if ours is None:
        allowed = " or ".join(_PLAIN.get(one) or _article(one) for one in classes if one != "None")
        shown = repr(value)[:60] if isinstance(value, str | int | float | None) else kind
        fields = "; its fields can also be given by name" if allowed.endswith("Spec") else ""
        return f"{name}: `{parameter}` must be {allowed}, not {shown}{fields}"
    message = f"{name}: `{parameter}` must be {_article(ours)}"
    if any(_is_one(other, [ours]) for other in given.values()):
        order = ", ".join(one for one in given if one != "self")
        return f"{message}, not {kind}; the order is {name}({order})"
    function, does = _MADE_BY[ours]
    if isinstance(value, str | os.PathLike) and ours in ("FrozenLM", "Relation", "Mixture"):
        return f"{message}: write askwell.{function}({str(value)!r})"
    return f"{message}, not {kind}: askwell.{function} {does}"


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "AEIOUaeiou" else f"a {name}"
