"""The folder of a run: what may be written into it, its history, and its document."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from askwell.errors import BadOption
from askwell.files import need_writable_folder, write_whole

if TYPE_CHECKING:
    from askwell.mixture.mixture import Mixture

HISTORY, PER_FACT = "history.jsonl", "facts.parquet"


@runtime_checkable
class _Progress(Protocol):
    @property
    def record(self) -> Any: ...
    @property
    def history(self) -> Any: ...


ProgressT = TypeVar("ProgressT", bound=_Progress)


def check_folder(out: Path, *, resume: bool, overwrite: bool, checkpoint: str, holds: str) -> None:
    """Makes sure that the folder can be written, and that nothing in it is lost against the user's will."""
    if resume and overwrite:
        raise BadOption("--resume and --overwrite exclude each other")
    is_there, is_unfinished = (out / "config.json").exists(), (out / checkpoint).exists()
    if not resume and not overwrite and is_unfinished:
        raise BadOption(f"--out {out} holds an unfinished run: go on with --resume, or begin anew with --overwrite")
    if not resume and not overwrite and is_there:
        raise BadOption(f"--out {out} holds {holds} already: name another folder, or replace it with --overwrite")
    if resume and is_there and not is_unfinished:
        raise BadOption(f"--resume: the run in {out} is finished; there is nothing to go on with")
    need_writable_folder(out, "--out")


def keeping_history(out: Path, show: Callable[[ProgressT], None]) -> Callable[[ProgressT], None]:
    """Writes the history of a run whenever dev was scored, and shows the progress."""

    def keep(progress: ProgressT) -> None:
        if progress.record is not None:
            lines = [json.dumps(_as_json(record), ensure_ascii=False) + "\n" for record in progress.history]
            write_whole(out / HISTORY, "".join(lines))
        show(progress)

    return keep


def _as_json(record: Any) -> dict[str, Any]:
    return record if isinstance(record, dict) else record.as_json()


def prompts_document(mixture: "Mixture") -> dict[str, Any]:
    """The LM and the prompts of a run, for `--json`."""
    return {
        "lm": mixture.lm.identity.model_dump(),
        "prompts": [
            {"template": prompt.template.text, "weight": weight}
            for prompt, weight in zip(mixture.prompts, mixture.weights.tolist(), strict=True)
        ],
        "left_out_prompts": [
            {"template": prompt.template.text, "reason": prompt.reason} for prompt in mixture.left_out_prompts
        ],
    }
