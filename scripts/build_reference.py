"""Writes docs/reference/api.md from docstrings and docs/reference/commands.md from the commands' own help."""

import contextlib
import inspect
import io
import os
from pathlib import Path

os.environ.update(COLUMNS="110", NO_COLOR="1", TERM="dumb")

import askwell
from askwell.cli.main import app, main

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"


def api() -> str:
    """All public names with their signatures and docstrings, methods and properties included."""
    parts = ["# Python API\n\nAll of it is imported from `askwell`. This page is made from the docstrings."]
    for name in sorted(askwell.__all__, key=str.lower):
        thing = getattr(askwell, name)
        if name == "__version__":
            continue
        parts.append(f"## {name}\n\n{_described(name, thing)}")
        if inspect.isclass(thing):
            for member, value in sorted(vars(thing).items()):
                text = _text(value.fget if isinstance(value, property) else getattr(thing, member))
                is_ours = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
                if member.startswith("_") or not is_ours or not text:
                    continue
                shown = (
                    f"`.{member}`"
                    if isinstance(value, property)
                    else f"`.{member}{_signature(getattr(thing, member))}`"
                )
                parts.append(f"{shown}\n:   {text}")
    return "\n\n".join(parts) + "\n"


def _described(name: str, thing: object) -> str:
    signature = _signature(thing) if callable(thing) else ""
    return f"```python\n{name}{signature}\n```\n\n{_text(thing)}"


def _signature(thing: object) -> str:
    try:
        parameters = inspect.signature(thing).parameters.values()  # ty: ignore[invalid-argument-type]
    except (TypeError, ValueError):
        return ""
    plain = [
        one.name if one.default is one.empty else f"{one.name}={_default(one.default)}"
        for one in parameters
        if one.name not in ("self", "cls")
    ]
    return f"({', '.join(plain)})"


def _default(value: object) -> str:
    return repr(value) if isinstance(value, str | int | float | bool | type(None)) else "…"


def _text(thing: object) -> str:
    return " ".join((inspect.getdoc(thing) or "").split()).replace("[X]", "`[X]`").replace("[Y]", "`[Y]`")


def commands() -> str:
    """The help of every command, as it is printed."""
    parts = ["# Commands\n\nWhat `askwell COMMAND --help` prints."]
    for words in _commands():
        written = io.StringIO()
        with contextlib.redirect_stdout(written), contextlib.suppress(SystemExit):
            main([*words, "--help"])
        lines = "\n".join(line.rstrip() for line in written.getvalue().strip().splitlines())
        parts.append(f"## askwell {' '.join(words)}\n\n```text\n{lines}\n```")
    return "\n\n".join(parts) + "\n"


def _commands() -> list[list[str]]:
    groups = ("lm", "data", "testbed")
    found = [[name] for name in app if not name.startswith("-") and name not in groups]
    return sorted(found) + [[group, name] for group in groups for name in app[group] if not name.startswith("-")]


if __name__ == "__main__":
    REFERENCE.mkdir(exist_ok=True)
    (REFERENCE / "api.md").write_text(api(), encoding="utf-8")
    (REFERENCE / "commands.md").write_text(commands(), encoding="utf-8")
