"""`askwell export`."""

from pathlib import Path

from askwell.cli.options import LM, Where
from askwell.cli.terminal import note
from askwell.errors import AskwellError
from askwell.files import need_writable_folder, write_whole


def export(run: Path, /, *, out: Path = Path("run.html"), where: Where = None, lm: LM = None) -> None:
    """Write a run as one self-contained HTML file for a colleague: scores, trust, prompts, some answers.

    Args:
        run: A run, a folder of runs, or a store.
        out: The HTML file.
    """
    need_writable_folder(out.parent, "--out")
    from askwell.errors import BadOption
    from askwell.report.words import look_at
    from askwell.runs.query import select_runs
    from askwell.runs.sources import saved_mixture
    from askwell.server.export import exported

    runs = select_runs(run, where)
    if len(runs) > 1:
        raise BadOption(f"{run} holds {len(runs)} runs: choose one with --where, or name its folder")
    prompts = None
    if runs[0].mixture is not None:
        try:
            mixture = saved_mixture(str(runs[0].mixture), lm, revision=None, device=None, dtype="auto")
            prompts = look_at(mixture)
        except AskwellError as problem:
            note(f"the prompts are not drawn: {problem}")
    write_whole(out, exported(runs[0].folder.resolve().name, runs[0], prompts))
    note(f"written to {out}")
