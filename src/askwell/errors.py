"""Every error that askwell raises on purpose.

AskwellError
├── UserMistake            wrong input: the message says what, where and what to do (exit code 2)
│   ├── BadFile            a file that is missing, empty, broken or in an unknown format; names file and line
│   ├── BadTemplate        a template that is not a valid prompt
│   ├── BadOption          an invalid option or combination of options
│   │   └── NoPrompts      a set of prompts that has none for a relation
│   ├── NothingLeft        facts, prompts or candidates were all left out; says why, with counts
│   ├── LMUnavailable      an LM that is not available or cannot be used
│   └── WrongLM            a mixture was learned on another LM
└── Failure                the input was right, but the work went wrong (exit code 1)
    ├── DamagedFile        a saved file that is truncated, altered or of an unknown version
    ├── NotFinite          the LM gave NaN or infinity
    └── CannotWrite        an output folder that cannot be written
"""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class AskwellError(Exception):
    """Root of all errors that askwell raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors go from one process to another, whatever their constructors take.
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(kind: type[AskwellError], arguments: tuple[Any, ...], attributes: dict[str, Any]) -> AskwellError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(attributes)
    return error


class UserMistake(AskwellError):
    """Wrong input."""


class BadFile(UserMistake):
    """A file that is missing, empty, broken or in an unknown format."""

    def __init__(self, path: Path | str, problem: str, line: int | None = None) -> None:
        self.path, self.problem, self.line = Path(path), problem, line
        place = f"{path}" if line is None else f"{path}, line {line}"
        super().__init__(f"{place}: {problem}")


class BadTemplate(UserMistake):
    """A template that is not a valid prompt."""


class BadOption(UserMistake):
    """An invalid option or combination of options."""


class NoPrompts(BadOption):
    """A set of prompts that has none for a relation."""


class NothingLeft(UserMistake):
    """Facts, prompts or candidates were all left out."""

    def __init__(self, what: str, reasons: Mapping[str, int]) -> None:
        counted = "; ".join(f"{count} × {reason}" for reason, count in sorted(reasons.items())) or "none were given"
        super().__init__(f"no {what} left: {counted}")


class LMUnavailable(UserMistake):
    """An LM that is not available or cannot be used."""


class WrongLM(UserMistake):
    """A mixture was learned on another LM."""


class Failure(AskwellError):
    """The input was right, but the work went wrong."""


class DamagedFile(Failure):
    """A saved file that is truncated, altered or of an unknown version."""


class NotFinite(Failure):
    """The LM gave NaN or infinity."""


class CannotWrite(Failure):
    """An output folder that cannot be written."""


def did_you_mean(typed: str, known: Iterable[str]) -> str:
    """How a message about an unknown name ends: with the name most like it, or else with all of them."""
    names = list(known)
    close = difflib.get_close_matches(typed, names, n=1)
    return f"; did you mean {close[0]}?" if close else f"; choose from {', '.join(names)}"
