"""`askwell testbed list` and `askwell testbed train`."""

from pathlib import Path

from rich.progress import BarColumn, TimeRemainingColumn

from askwell.cli.options import Json, Threads
from askwell.cli.terminal import note, print_json, progress_bar, say, show
from askwell.data.testbed import PREFIX, LMName, lms_folder, testbed_overview
from askwell.files import need_writable_folder, to_json
from askwell.views.document import table


def list_testbed(*, json: Json = False) -> None:
    """List the testbed: its relations with counts of told and withheld facts, its prompts and its LMs."""
    overview = testbed_overview()
    if json:
        print_json(to_json(overview))
        return

    rows = [(one.name, one.label, one.cardinality, str(one.told), str(one.withheld)) for one in overview.relations]
    show(table(("--facts", "what it says", "kind", "told", "withheld"), rows, numbers=("told", "withheld")))
    told, withheld = sum(one.told for one in overview.relations), sum(one.withheld for one in overview.relations)
    say(
        f"{told + withheld} facts: {told} are told in the text that the LMs were trained on, {withheld} are withheld.",
        f"--lm: {', '.join(overview.lms)}.",
        f"--prompts: {PREFIX}single (manual), {PREFIX}paraphrased, {PREFIX}mined, {PREFIX}random (random words in "
        "place of the mined ones); --initial random takes random vectors.",
        f"Try: askwell ask --lm {PREFIX}bert --facts {PREFIX}capital --prompts {PREFIX}single France",
    )


def train_testbed(lm: LMName, /, *, out: Path | None = None, threads: Threads = None) -> None:
    """Train an LM of the testbed from scratch on the testbed's text. The same command resumes an interrupted training.

    Args:
        lm: The LM to make.
        out: The folder to write to; default: the LM's folder in the package.
    """
    from askwell.lms.load import available_threads
    from askwell.testbed.train_lm import LMTrainingProgress, train_lm

    folder = out or lms_folder() / lm
    need_writable_folder(folder, "--out")
    bar = progress_bar("{task.description}", BarColumn(), TimeRemainingColumn())
    task = bar.add_task(f"testbed:{lm}", total=None)

    def follow(state: LMTrainingProgress) -> None:
        bar.update(
            task,
            description=f"testbed:{lm} epoch {state.epoch}/{state.epochs} loss {state.loss:.3f}",
            total=state.epochs * state.steps,
            completed=(state.epoch - 1) * state.steps + state.steps_done,
        )
        if state.steps_done == state.steps:
            note(f"epoch {state.epoch}/{state.epochs}  loss {state.loss:.3f}")

    with bar:
        train_lm(lm, folder, threads=threads or available_threads(), progress=follow)
    note(f"testbed:{lm} is in {folder}")
