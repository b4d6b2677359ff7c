"""`askwell testbed list` and `askwell testbed train`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from askwell.cli.options import Json, Threads
from askwell.data.testbed import LMName


def list_testbed(*, json: Json = False) -> None:
    """List the testbed: its relations with counts of told and withheld facts, its prompts and its LMs."""
    from askwell.cli.terminal import out, print_json
    from askwell.data.testbed import PREFIX, testbed_overview

    overview = testbed_overview()
    if json:
        print_json(overview)
        return
    from rich.table import Table

    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("--facts", no_wrap=True, style="bold")
    table.add_column("what it says", overflow="fold")
    table.add_column("kind", no_wrap=True)
    for column in ("told", "withheld"):
        table.add_column(column, justify="right", no_wrap=True)
    for relation in overview["relations"]:
        table.add_row(*(str(relation[key]) for key in ("name", "label", "cardinality", "told", "withheld")))
    out.print(table)
    told, withheld = (sum(relation[key] for relation in overview["relations"]) for key in ("told", "withheld"))
    out.print(
        f"{told + withheld} facts: {told} are told in the text that the LMs were trained on, {withheld} are withheld.\n"
        f"--lm: {', '.join(overview['lms'])}.\n"
        f"--prompts: {PREFIX}single (manual), {PREFIX}paraphrased, {PREFIX}mined, {PREFIX}random (random words in "
        "place of the mined ones); --initial random takes random vectors.\n"
        f"Try: askwell ask --lm {PREFIX}bert --facts {PREFIX}capital --prompts {PREFIX}single France",
        soft_wrap=True,
        markup=False,
    )


def train_testbed(
    lm: Annotated[LMName, Parameter(help="The LM to make.")],
    /,
    *,
    out: Annotated[Path | None, Parameter(help="The folder to write it to; default: its place in the package.")] = None,
    threads: Threads = None,
) -> None:
    """Train an LM of the testbed from scratch, on the testbed's text. If interrupted, it continues when rerun."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from askwell.cli.terminal import log, note
    from askwell.data.testbed import lms_folder
    from askwell.files import need_writable_folder
    from askwell.testbed.train_lm import LMTrainingProgress, train_lm
    from askwell.training.loop import available_threads

    folder = out or lms_folder() / lm
    need_writable_folder(folder, "--out")
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=log, transient=True,
        disable=not log.is_terminal,
    )  # fmt: skip
    task = bar.add_task(f"testbed:{lm}", total=None)

    def show(state: LMTrainingProgress) -> None:
        bar.update(
            task,
            description=f"testbed:{lm} epoch {state.epoch}/{state.epochs} loss {state.loss:.3f}",
            total=state.epochs * state.steps,
            completed=(state.epoch - 1) * state.steps + state.steps_done,
        )
        if state.steps_done == state.steps:
            note(f"epoch {state.epoch}/{state.epochs}  loss {state.loss:.3f}")

    with bar:
        train_lm(lm, folder, threads=threads or available_threads(), progress=show)
    note(f"testbed:{lm} is in {folder}")
