"""`askwell export`."""

from pathlib import Path

from askwell.cli.options import LM, Where
from askwell.cli.terminal import note
from askwell.files import need_writable_folder, write_whole


def export(run: Path, /, *, out: Path = Path("run.html"), where: Where = None, lm: LM = None) -> None:
    """Write a run as one self-contained HTML file for a colleague: scores, trust, prompts, some answers.

    Args:
        run: A run, a folder of runs, or a store.
        out: The HTML file.
    """
    need_writable_folder(out.parent, "--out")
    from askwell.server.export import export_run

    write_whole(out, export_run(run, where, lm, note=note))
    note(f"written to {out}")
