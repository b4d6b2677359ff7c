"""`askwell testbed`: what there is, and how its LMs are made again."""

from pathlib import Path
from typing import Annotated, get_args

from cyclopts import Parameter

from askwell.cli.options import Json, Threads
from askwell.data.testbed import LMName


def list_testbed(*, json: Json = False) -> None:
    """List the testbed: its relations with counts of told and withheld facts, its prompts and its LMs."""
    from askwell.cli.terminal import out, print_json
    from askwell.data.testbed import PREFIX, PromptKind, lm_names, relations, testbed_prompts

    kinds = get_args(PromptKind)
    counts = {
        relation.name: {kind: len(testbed_prompts(kind, relation.name)) for kind in kinds} for relation in relations()
    }
    if json:
        print_json(
            {
                "lms": [PREFIX + name for name in lm_names()],
                "relations": [
                    {
                        "name": PREFIX + relation.name,
                        "label": relation.label,
                        "cardinality": relation.cardinality,
                        "told": relation.told,
                        "withheld": relation.withheld,
                        "prompts": counts[relation.name],
                    }
                    for relation in relations()
                ],
            }
        )
        return
    from rich.table import Table

    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("--facts", no_wrap=True, style="bold")
    table.add_column("what it says", overflow="fold")
    table.add_column("kind", no_wrap=True)
    for column in ("told", "withheld"):
        table.add_column(column, justify="right", no_wrap=True)
    for relation in relations():
        told, withheld = str(relation.told), str(relation.withheld)
        table.add_row(PREFIX + relation.name, relation.label, relation.cardinality, told, withheld)
    out.print(table)
    told, withheld = (sum(getattr(relation, kind) for relation in relations()) for kind in ("told", "withheld"))
    out.print(
        f"{told + withheld} facts: {told} are told in the text that the LMs were trained on, {withheld} are withheld.\n"
        f"--lm: {', '.join(PREFIX + name for name in lm_names())}.\n"
        f"--prompts: {PREFIX}single (manual), {PREFIX}paraphrased, {PREFIX}mined, {PREFIX}random (random words at the "
        "places of the mined ones); --initial random takes random vectors.\n"
        f"Try: askwell ask --lm {PREFIX}bert --facts {PREFIX}capital --prompts {PREFIX}single France",
        soft_wrap=True,
        markup=False,
    )


def train_testbed(
    lm: Annotated[LMName, Parameter(help="The LM to make.")],
    /,
    *,
    out: Annotated[
        Path | None, Parameter(help="The folder it goes to; its place in the package, if not given.")
    ] = None,
    threads: Threads = None,
) -> None:
    """Train an LM of the testbed from nothing, on the testbed's text. Interrupted, it goes on when started again."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from askwell.cli.terminal import log, note
    from askwell.data.testbed import lms_folder
    from askwell.files import need_writable_folder
    from askwell.testbed.train_lm import Progress as TrainingState
    from askwell.testbed.train_lm import train_lm
    from askwell.training.loop import available_threads

    folder = out or lms_folder() / lm
    need_writable_folder(folder, "--out")
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=log, transient=True,
        disable=not log.is_terminal,
    )  # fmt: skip
    task = bar.add_task(f"testbed:{lm}", total=None)

    def show(state: TrainingState) -> None:
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
