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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


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
