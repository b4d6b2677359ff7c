"""Every error that askwell raises on purpose.

AskwellError
├── UsageError            wrong input: the message says what, where and what to do (exit code 2)
│   ├── BadFile            a file that is missing, empty, broken or in an unknown format; names file and line
│   ├── BadTemplate        a template that is not a valid prompt
│   ├── BadOption          an invalid option or combination of options
│   │   └── NoPrompts      a set of prompts that has none for a relation
│   ├── NothingLeft        facts, prompts or candidates were all left out; says why, with counts
│   ├── NothingSettled     no score is known of any fact, since every search was cut
│   ├── LMUnavailable      an LM that is not available or cannot be used
│   └── WrongLM            a mixture was learned on another LM
└── Failure                the input was right, but the work went wrong (exit code 1)
    ├── DamagedFile        a saved file that is truncated, altered or of an unknown version
    ├── NotFinite          the LM gave NaN or infinity
    └── CannotWrite        an output folder that cannot be written

A message names arguments of functions (`ratio` 70-30), and its error knows what they are called on the command line,
where it reads --split-ratio 70-30: raise BadOption("`ratio` 70-30: …", ratio="--split-ratio").
"""

import difflib
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar, cast


class AskwellError(Exception):
    """Root of all errors that askwell raises on purpose.

    `options` are the arguments that the message names in backticks, each with its option of the command line.
    """

    def __init__(self, message: str, **options: str) -> None:
        super().__init__(message)
        self.options = options

    def for_command_line(self) -> str:
        """Return the message with options in place of arguments."""
        message = super().__str__()
        for argument, option in self.options.items():
            message = message.replace(f"`{argument}`", option)
        return message

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors are passed between processes, whatever arguments their constructors take.
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(kind: type[AskwellError], arguments: tuple[Any, ...], attributes: dict[str, Any]) -> AskwellError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(attributes)
    return error


class UsageError(AskwellError):
    """Wrong input."""


class BadFile(UsageError):
    """A file that is missing, empty, broken or in an unknown format."""

    def __init__(self, path: Path | str, problem: str, line: int | None = None, **options: str) -> None:
        self.path, self.problem, self.line = Path(path), problem, line
        place = f"{path}" if line is None else f"{path}, line {line}"
        super().__init__(f"{place}: {problem}", **options)


class BadTemplate(UsageError):
    """A template that is not a valid prompt."""


class BadOption(UsageError):
    """An invalid option or combination of options."""


class NoPrompts(BadOption):
    """A set of prompts that has none for a relation."""


class NothingLeft(UsageError):
    """Facts, prompts or candidates were all left out."""

    def __init__(self, what: str, reasons: Mapping[str, int], way_out: str = "", **options: str) -> None:
        counted = "; ".join(f"{count} × {reason}" for reason, count in sorted(reasons.items())) or "none were given"
        super().__init__(f"no {what} left: {counted}{way_out}", **options)


class NothingSettled(UsageError):
    """No score is known of any fact, since every search was cut."""


class LMUnavailable(UsageError):
    """An LM that is not available or cannot be used. `lm` before its name is for the command line alone."""

    def __init__(self, message: str, **options: str) -> None:
        super().__init__(message, **{"lm": "--lm"} | options)

    def __str__(self) -> str:
        return super().__str__().replace("`lm` ", "")


class WrongLM(UsageError):
    """A mixture was learned on another LM."""


class Failure(AskwellError):
    """The input was right, but the work went wrong."""


class DamagedFile(Failure):
    """A saved file that is truncated, altered or of an unknown version."""


class NotFinite(Failure):
    """The LM gave NaN or infinity."""


class CannotWrite(Failure):
    """An output folder that cannot be written."""


# What other libraries call things, and what they are called here.
_USUAL_NAMES = {
    **dict.fromkeys(("k", "n", "topk", "top_k", "n_best", "num_answers", "limit"), ("top", "nearest")),
    **dict.fromkeys(("lr", "step_size"), ("learning_rate",)),
    **dict.fromkeys(("steps", "max_steps", "num_steps", "budget"), ("pairs",)),
    **dict.fromkeys(("num_epochs", "max_epochs", "num_train_epochs"), ("epochs",)),
    **dict.fromkeys(("bs", "batch", "batch_size"), ("batch_facts",)),
    **dict.fromkeys(("model", "model_name", "checkpoint", "lm"), ("name", "lm")),
    **dict.fromkeys(("torch_dtype", "precision"), ("dtype",)),
    **dict.fromkeys(("prompt", "prompts", "template"), ("templates", "sources")),
    **dict.fromkeys(("facts", "data", "dataset", "path", "file"), ("relation", "source", "path")),
    **dict.fromkeys(("columns", "x_column", "x_col", "subject", "sub"), ("x",)),
    **dict.fromkeys(("y_column", "y_col", "object", "obj"), ("y",)),
    **dict.fromkeys(("out", "out_dir", "output", "output_dir", "save_dir"), ("folder",)),
    **dict.fromkeys(("choices", "labels", "options"), ("candidates",)),
    **dict.fromkeys(("val", "valid", "validation", "eval"), ("dev",)),
    **dict.fromkeys(("url", "host"), ("address",)),
    **dict.fromkeys(("random_state", "random_seed"), ("seed",)),
    **dict.fromkeys(("num_threads", "n_jobs"), ("threads",)),
    **dict.fromkeys(("num_shots", "n_shots", "few_shot"), ("shots",)),
}


def did_you_mean(typed: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the one that other libraries call so, the most similar one, or
    all names if none is similar."""
    names = list(known)
    close = [name for name in _USUAL_NAMES.get(typed, ()) if name in names] or difflib.get_close_matches(
        typed, names, n=1
    )
    return f"; did you mean {close[0]}?" if close else f"; choose from {', '.join(names)}"


def first_few(names: Sequence[str], most: int = 3) -> str:
    """Return the first of several names, with an ellipsis if there are more."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


# ── calls that do not fit ─────────────────────────────────────────────────────────────────────────────────────────────

_Call = TypeVar("_Call", bound=Callable[..., Any])
_MADE_BY = {
    "FrozenLM": "load_lm loads one",
    "Relation": "load_relation makes one from a name, a file, pairs, a dictionary or a frame",
    "Mixture": "Mixture.from_pretrained loads a saved one, and askwell.Mixture(lm, templates) builds a new one",
    "RunSpec": "build_run_spec makes one",
}
"""How to get the objects that functions need."""
_PLAIN = {"int": "a whole number", "float": "a number", "str": "a string", "bool": "True or False", "Path": "a path"}
# Python itself takes whole numbers of numpy, and paths of other libraries.
_WIDER = {"int": Integral, "float": Real, "Path": os.PathLike, "None": type(None)}


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
    classes = {one.name: _classes(one.annotation) for one in signature.parameters.values()}

    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        try:
            given = signature.bind(*arguments, **options).arguments
        except TypeError as error:
            raise BadOption(instead or _misfit(name, signature, options, str(error))) from None
        for parameter, value in given.items():
            if not any(_is_one(value, one) for one in classes[parameter]):
                raise BadOption(instead or _wrong_class(name, parameter, given, classes[parameter]))
        return function(*arguments, **options)

    return cast("_Call", called)


def checked_or(instead: str) -> Callable[[_Call], _Call]:
    """Return `checked` with a message of its own."""
    return functools.partial(checked, instead=instead)


def _classes(annotation: Any) -> list[str]:
    """Return the names of the classes that an annotation has: some are imported for type checkers alone."""
    return [part.rpartition(".")[2] for part in inspect.formatannotation(annotation).strip("'").split(" | ")]


def _is_one(value: Any, name: str) -> bool:
    if name in ("Any", "_empty") or not name.isidentifier():  # what is more than a name is not checked
        return True
    return name in (base.__name__ for base in type(value).__mro__) or isinstance(value, _WIDER.get(name, ()))


def _misfit(name: str, signature: inspect.Signature, options: Mapping[str, Any], problem: str) -> str:
    """Return what is wrong with the names or the number of arguments, beginning from what Python calls the problem."""
    own = {name: one for name, one in signature.parameters.items() if name not in ("self", "cls")}
    missing = problem.split("'")[1] if problem.startswith("missing") else ""
    takes_fields = any(one.kind is one.VAR_KEYWORD for one in own.values())  # those of a spec, which checks them itself
    for option in (option for option in options if option not in own):
        meant = did_you_mean(option, [missing] if takes_fields else own)
        if not takes_fields or meant.startswith("; did you mean"):
            return f"{name} has no option {option!r}{meant}"
    by_position = [name for name, one in own.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    if missing:
        needed = ", ".join(name for name in by_position if own[name].default is inspect.Parameter.empty)
        ways = [f"; askwell.{_MADE_BY[one]}" for one in _classes(own[missing].annotation) if one in _MADE_BY]
        return f"{name} needs `{missing}`: write {name}({needed}){''.join(ways)}"
    if "positional" not in problem:
        return f"{name}: {problem}"
    by_name = ", ".join(name for name, one in own.items() if one.kind is one.KEYWORD_ONLY)
    more = f"; give the others by name: {by_name}" if by_name else ""
    return f"{name} takes only {', '.join(by_position) or 'nothing'} by position{more}"


def _wrong_class(name: str, parameter: str, given: Mapping[str, Any], classes: Sequence[str]) -> str:
    """Return what is wrong with the class of an argument."""
    value, wanted = given[parameter], " or ".join(_PLAIN.get(one) or _article(one) for one in classes if one != "None")
    message, kind = f"{name}: `{parameter}` must be {wanted}", _article(type(value).__name__)
    if classes[0] not in _MADE_BY:
        shown = repr(value)[:60] if isinstance(value, str | int | float | None) else kind
        return f"{message}, not {shown}{'; its fields can also be given by name' if wanted.endswith('Spec') else ''}"
    if any(_is_one(other, classes[0]) for other in given.values()):
        return f"{message}, not {kind}; the order is {name}({', '.join(one for one in given if one != 'self')})"
    if isinstance(value, str | os.PathLike) and classes[0] != "RunSpec":
        return f"{message}: write askwell.{_MADE_BY[classes[0]].split()[0]}({str(value)!r})"
    return f"{message}, not {kind}: askwell.{_MADE_BY[classes[0]]}"


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "AEIOUaeiou" else f"a {name}"
