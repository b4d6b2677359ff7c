"""The command line: `askwell COMMAND …`. `commands.py` lists the commands."""

import contextlib
import errno
import io
import logging
import os
import re
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NoReturn

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter, UnusedCliTokensError

from askwell.cli.commands import HEADINGS, add_commands
from askwell.errors import AskwellError, UsageError
from askwell.version import VERSION
from askwell.views.printable import clipped, printable

USER_MISTAKE, FAILURE, INTERRUPTED = 2, 1, 130
HELP_ALL = "--help-all"
"""Shows all options of a command, where --help shows the common ones."""
DEBUG = "--debug"
"""Shows the traceback of an unexpected error."""


def _versions() -> str:
    """Return the versions of askwell and of what it runs on."""
    from importlib.metadata import version

    return (
        f"{VERSION} (torch {version('torch')}, transformers {version('transformers')}, Python {sys.version.split()[0]})"
    )


def _shown_default(value: object) -> str | None:
    """Format a default for the help; a switch that is off by default shows none."""
    return None if value is None or value is False else repr(value)[1:-1] if isinstance(value, str) else str(value)


app = App(
    name="askwell",
    version=_versions,
    help="Find out what a frozen language model knows, by learning how to ask it.",
    help_format="markdown",
    default_parameter=Parameter(show_default=_shown_default),
)
add_commands(app)
app.register_install_completion_command(
    help="Let the shell complete commands and options with the tab key (bash, zsh, fish)."
)
for _flag in ("--help", "--version", "--install-completion"):
    app[_flag].group = HEADINGS["Options"]


@app["testbed"].default
def _testbed() -> None:
    from askwell.cli.data import list_testbed

    list_testbed()


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command; exit with 0, with 2 for a user's mistake, with 1 for a failure, or with 130 when interrupted.

    No traceback is shown without `--debug`.
    """
    _open_streams()
    logging.getLogger("askwell").addHandler(logging.NullHandler())  # commands print their own notes
    signal.signal(signal.SIGTERM, _interrupt)  # a job that is terminated saves its state, as on Ctrl-C
    given = sys.argv[1:] if arguments is None else arguments
    words = [word for word in given if word != DEBUG]
    try:
        # A command's help is its docstring; the one-line help is for the list of commands.
        named = [one for one in app.parse_commands(words)[1] if one.default_command and one.default_command.__doc__]
        shown = [(command, command.help, command.help_formatter) for command in named]
        try:
            for command in named:
                command.help = None
                command.help_formatter = None if HELP_ALL in words else command.help_formatter
            words = ["--help" if word == HELP_ALL else word for word in words]
            app(words, exit_on_error=False, print_error=False)
        finally:
            for command, line, formatter in shown:
                command.help, command.help_formatter = line, formatter
            sys.stdout.flush()  # here, where a full disk can still be reported
    except CycloptsError as error:
        _stop(_speak_in_options(error), USER_MISTAKE)
    except AskwellError as error:
        _stop(error.for_command_line(), USER_MISTAKE if isinstance(error, UsageError) else FAILURE)
    except KeyboardInterrupt:
        _stop("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output, e.g. `head`, has seen enough
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        if DEBUG in given:
            raise
        _stop(*_unexpected(error))
    sys.exit(0)


def _open_streams() -> None:
    """Let stdout and stderr accept any text: a closed stream discards it, and one in ASCII escapes it."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - until the process ends
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _unexpected(error: Exception) -> tuple[str, int]:
    """Describe an error that nothing else has handled in one sentence, and return it with the exit code."""
    if isinstance(error, OSError) and error.errno in _SYSTEM_ERRORS:
        where = f"{error.filename}: " if error.filename is not None else "the output cannot be written: "
        if error.filename is None:
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it again when it exits
        return f"{where}{error.strerror}", USER_MISTAKE if error.errno == errno.ENAMETOOLONG else FAILURE
    if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
        return "there is not enough memory", FAILURE
    what = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}" if str(error).strip() else repr(error)
    try:
        handle, name = tempfile.mkstemp(prefix="askwell-", suffix=".txt")
        os.close(handle)
        Path(name).write_text("".join(traceback.format_exception(error)), encoding="utf-8", errors="backslashreplace")
    except OSError:
        return f"unexpected error ({clipped(what, 300)}); {DEBUG} shows the traceback", FAILURE
    return (
        f"unexpected error ({clipped(what, 300)}), probably a bug: please report it with the traceback, which is in "
        f"{name}; {DEBUG} shows it here",
        FAILURE,
    )


_NO_NUMBER = {"int_parsing": "must be a whole number", "float_parsing": "must be a number"}
# Messages of torch for errors that do not have their own type on every device.
_NO_MEMORY = re.compile(r"can't allocate memory|out of memory", re.IGNORECASE)
# File names that are too long, disks that are full or read-only: a traceback would not help.
_SYSTEM_ERRORS = {
    errno.ENAMETOOLONG, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.EMFILE,
    errno.ENFILE, errno.ELOOP,
}  # fmt: skip


def _stop(message: str, code: int) -> NoReturn:
    print(clipped(printable(f"askwell: {message}")), file=sys.stderr)
    sys.exit(code)


def _speak_in_options(error: CycloptsError) -> str:
    """Phrase a parser's error in terms of the options as typed; pydantic's own messages name fields and types."""
    from pydantic import ValidationError

    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        words = [word for command in error.command_chain or () for word in command.split()]
        problem = str(error).strip()
        if isinstance(error, UnusedCliTokensError):
            left = ", ".join(map(repr, error.unused_tokens or ()))
            problem = (
                f"{' '.join(words) or 'askwell'}: {left}: it is not clear what this belongs to. A value stands after "
                "its option, and a text with spaces stands in quotes."
            )
        elif isinstance(error, MissingArgumentError) and (lacking := error.argument) and not error.keyword:
            problem = f"{' '.join(words)} needs {lacking.name}. {lacking.parameter.help or ''}".rstrip()
        return f"{problem}\nTry '{' '.join(['askwell', *words, '--help'])}'."
    problems = []
    for problem in cause.errors():
        message = _NO_NUMBER.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
        option = "".join(f"--{str(name).replace('_', '-')} " for name in problem["loc"])
        given = f"{problem['input']}: " if option else ""
        problems.append(f"{option}{given}{message}")
    return "; ".join(problems)
