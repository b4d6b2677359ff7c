"""Writes docs/reference/api.md from docstrings and docs/reference/commands.md from the commands' own specs."""

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from cyclopts import App
from cyclopts.argument import Argument
from pydantic import BaseModel

import askwell
from askwell.cli.commands import COMMANDS, GROUPS, Command
from askwell.cli.main import app

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
TOPICS = {
    "LMs": ("load_lm", "FrozenLM"),
    "Facts and prompts": (
        "load_relation", "load_folds", "load_prompts", "load_candidates", "Relation", "Fact", "Template",
        "Candidates",
    ),
    "Mixtures": ("Mixture", "Reply", "Replies", "nearest_words", "Client"),
    "Training": ("train", "TrainingResult", "TrainingProgress"),
    "Evaluation": ("evaluate", "compare", "Evaluation", "Outcome"),
    "Changed LMs": ("diff", "Diff", "KnowledgeCallback"),
    "Runs": ("run", "build_run_spec", "load_runs", "Run", "RunRecord"),
    "Specs": ("MixtureSpec", "TrainingSpec", "RunSpec"),
    "Errors": ("AskwellError", "UsageError", "Failure"),
}  # fmt: skip

# Of classes with many methods, those that users call; the rest is for other rooms of the package.
MEMBERS = {
    "FrozenLM": ("context", "dtype", "vocabulary_size", "embedding_size", "summary"),
    "Mixture": (
        "ask", "forward", "configure_answers", "weights", "effective_prompts", "temperature", "embed", "plot",
        "summary", "save_pretrained", "from_pretrained", "push_to_hub", "save_peft",
    ),
}  # fmt: skip
# Objects that users get, not make.
MADE_BY = {
    "FrozenLM": "lm = askwell.load_lm(…)",
    "Replies": "replies = mixture.ask(…)",
    "Evaluation": "evaluation = askwell.evaluate(…)",
    "TrainingResult": "result = askwell.train(…)",
    "Run": "run = askwell.load_runs(…)[0]",
    "Diff": "found = askwell.diff(…)",
}
# Types of results, which need no import; `askwell` does not export them.
RESULTS = {
    "Reply": "askwell.answers.reply",
    "TrainingResult": "askwell.training.history",
    "TrainingProgress": "askwell.training.history",
    "Outcome": "askwell.evaluation.outcomes",
    "Diff": "askwell.runs.diff_lms",
    "RunRecord": "askwell.runs.record",
}
INTERNAL = {"asking_like", "for_card", "kept_by", "answers", "learned_from"}
OF_THE_HUB = {
    "save_pretrained": "Saves the mixture in a folder. From huggingface_hub's mixin, with its options.",
    "from_pretrained": "Loads a mixture from a folder or from the hub; `lm=` takes an LM that is already loaded.",
    "push_to_hub": 'Uploads the mixture with its model card: `push_to_hub("me/capitals", private=True)`.',
}


def api() -> str:
    """All public names by topic, with their signatures, docstrings, fields, methods and properties."""
    listed = {name for names in TOPICS.values() for name in names}
    shown = {*askwell.__all__, *RESULTS} - {"__version__"}
    if listed != shown:
        raise SystemExit(f"TOPICS does not fit askwell.__all__ and RESULTS: {sorted(listed ^ shown)}")
    parts = [
        "# Python API\n\nAll of it is imported from `askwell`, but for types of results, which need no import: "
        f"{', '.join(RESULTS)}. This page is made from the docstrings."
    ]
    for topic, names in TOPICS.items():
        parts.append(f"## {topic}")
        for name in names:
            thing = getattr(import_module(RESULTS.get(name, "askwell")), name)
            parts.append(f"### {name}\n\n```python\n{_call(name, thing)}\n```\n\n{_text(thing)}")
            if inspect.isclass(thing):
                parts += [part for part in (_fields(thing), _members(thing)) if part]
    return "\n\n".join(parts) + "\n"


def _call(name: str, thing: object) -> str:
    if inspect.isclass(thing) and (name in MADE_BY or issubclass(thing, BaseModel | Exception)):
        return MADE_BY.get(name, name)
    parameters = _parameters(thing)
    line = f"{name}({', '.join(parameters)})"
    return line if len(line) <= 90 else f"{name}(\n" + "".join(f"    {one},\n" for one in parameters) + ")"


def _parameters(thing: object) -> list[str]:
    try:
        parameters = list(inspect.signature(thing).parameters.values())  # ty: ignore[invalid-argument-type]
    except (TypeError, ValueError):
        return []
    named = [one for one in parameters if one.name not in ("self", "cls")]
    shown = [one.name if one.default is one.empty else f"{one.name}={_default(one.default)}" for one in named]
    first = next((at for at, one in enumerate(named) if one.kind is one.KEYWORD_ONLY), None)
    return shown if first is None else [*shown[:first], "*", *shown[first:]]


def _default(value: object) -> str:
    return repr(value) if isinstance(value, str | int | float | bool | type(None)) else "…"


def _fields(thing: type) -> str:
    """The fields of a spec or a dataclass with what their docstrings say."""
    described = dict(_attribute_docstrings(thing))
    if issubclass(thing, BaseModel):
        found = {name: field.get_default(call_default_factory=False) for name, field in thing.model_fields.items()}
        missing = {name for name, field in thing.model_fields.items() if field.is_required()}
    elif dataclasses.is_dataclass(thing):
        fields = [field for field in dataclasses.fields(thing) if not field.name.startswith("_")]
        found = {field.name: field.default for field in fields}
        missing = {name for name, default in found.items() if default is dataclasses.MISSING}
    else:
        return ""
    if not any(described.values()) and missing == set(found):  # nothing to say of them but their names
        return f"Fields: {', '.join(f'`{name}`' for name in found)}."
    rows = [
        f"| `{name}` | {'' if name in missing else f'`{_default(default)}`'} | {_cell(described.get(name, ''))} |"
        for name, default in found.items()
    ]
    return "\n".join(["| field | default | |", "|---|---|---|", *rows]) if rows else ""


def _attribute_docstrings(thing: type) -> Iterator[tuple[str, str]]:
    """The strings that stand below fields in the source."""
    source = textwrap.dedent(inspect.getsource(thing))
    for match in re.finditer(
        r'^    (\w+): [^\n]*(?:\n        [^\n]*|\n    \)[^\n]*)*\n    """(.*?)"""', source, re.M | re.S
    ):
        yield match[1], " ".join(match[2].split())


def _members(thing: type) -> str:
    """Methods and properties of a class, inherited ones too where they are ours; of large classes, those for users."""
    names = MEMBERS.get(thing.__name__) or sorted(
        name
        for home in thing.__mro__
        if home.__module__.startswith("askwell.")
        for name, value in vars(home).items()
        if not name.startswith("_") and name not in INTERNAL and _is_member(value)
    )
    parts = []
    for name in dict.fromkeys(names):
        value = inspect.getattr_static(thing, name)
        is_value = isinstance(value, property | cached_property)
        target = value.fget if isinstance(value, property) else getattr(thing, name)
        call = "" if is_value else f"({', '.join(_parameters(target))})"
        text = OF_THE_HUB.get(name) or _text(value if isinstance(value, cached_property) else target, indent="    ")
        if text:
            parts.append(f"`.{name}{'' if name in OF_THE_HUB else call}`\n:   {text}")
    return "\n\n".join(parts)


def _is_member(value: object) -> bool:
    return inspect.isfunction(value) or isinstance(value, property | cached_property | classmethod | staticmethod)


def _text(thing: object, indent: str = "") -> str:
    """A docstring, its paragraphs kept and its examples as code."""
    paragraphs = []
    for paragraph in (inspect.getdoc(thing) or "").split("\n\n"):
        if paragraph.startswith(">>>"):
            code = "\n".join(line.removeprefix(">>> ") for line in paragraph.splitlines())
            paragraphs.append(f"```python\n{code}\n```")
        else:
            paragraphs.append(_blanks(" ".join(paragraph.split())))
    return textwrap.indent("\n\n".join(paragraphs), indent).strip()


def _blanks(text: str) -> str:
    return re.sub(r"(?<!`)\[([XY])\](?!`)", r"`[\1]`", text)


def commands() -> str:
    """Every command with its arguments and options."""
    parts = [
        "# Commands\n\nThis page is made from the commands' own specs; `askwell COMMAND --help` prints the same. Every "
        "command takes `--help`, and `--debug` for the traceback of what was not foreseen. Results go to stdout, "
        "progress and notes to stderr. The exit code is 2 for a mistake in the input, 1 for a failure, 130 after "
        "Ctrl-C."
    ]
    parts += [_command(app, command) for command in COMMANDS]
    for group, (text, of_group) in GROUPS.items():
        parts.append(f"## askwell {group}\n\n{text}")
        parts += [_command(app[group], command, group) for command in of_group]
    return "\n\n".join(parts) + "\n"


def _command(parent: App, command: Command, group: str = "") -> str:
    words = f"{group} {command.name}".strip()
    made = parent[command.name]
    function = made.default_command
    text = (inspect.getdoc(function) or command.help).split("\nArgs:")[0].strip() if function else command.help
    paragraphs = [_blanks(" ".join(paragraph.split())) for paragraph in text.split("\n\n")]
    examples = "\n".join(command.examples)
    tables: dict[str, list[str]] = {}
    for argument in made.assemble_argument_collection(parse_docstring=True):
        if argument.parse and argument.show and argument.names != ("*",):
            tables.setdefault(_group(argument), []).append(_row(argument))
    shown = [
        "\n".join([f"| {name} | |", "|---|---|", *rows])
        for name, rows in sorted(tables.items(), key=lambda item: item[0] not in ("Arguments", "Parameters"))
    ]
    mark = "###" if group else "##"
    return "\n\n".join([f"{mark} askwell {words}", *paragraphs, f"```\n{examples}\n```", *shown])


def _group(argument: Argument) -> str:
    groups = argument.parameter.group or ()
    return str(getattr(groups[0], "_name", groups[0])) if groups else "Parameters"


def _row(argument: Argument) -> str:
    names = [name for name in argument.names if name.startswith("--")] or [
        (argument.parameter.name or argument.names)[0].upper().lstrip("-")
    ]
    default: Any = argument.field_info.default
    says = [_blanks(" ".join((argument.parameter.help or "").split()))]
    if argument.required:
        says.append("**Required.**")
    if choices := argument.get_choices():
        says.append(f"One of {', '.join(f'`{choice}`' for choice in choices)}.")
    if argument.show_default and default is not None and default is not False:
        shown = repr(default)[1:-1] if isinstance(default, str) else str(default)
        says.append(f"Default: `{shown}`.")
    written = "<br>".join(f"`{name}`" for name in names)
    return f"| {written} | {_cell(' '.join(part for part in says if part))} |"


def _cell(text: str) -> str:
    return _blanks(text).replace("|", "\\|")


if __name__ == "__main__":
    REFERENCE.mkdir(exist_ok=True)
    (REFERENCE / "api.md").write_text(api(), encoding="utf-8")
    (REFERENCE / "commands.md").write_text(commands(), encoding="utf-8")
