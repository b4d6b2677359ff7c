"""The folder of a run: writing it, and reading one run, a folder of runs, or a store."""

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from operator import attrgetter, methodcaller
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from askwell.data.facts import SplitName
from askwell.data.split import fold_of
from askwell.errors import BadFile, BadOption, checked
from askwell.evaluation.comparison import Outcomes
from askwell.evaluation.metrics import LOG_LOSS, METRICS, metric_named
from askwell.evaluation.outcomes import (
    Outcome,
    read_controls,
    read_golds,
    read_outcomes,
    write_controls,
    write_golds,
    write_outcomes,
)
from askwell.files import need_writable_folder, problem_in, read_saved, remove_own_files, run_like, write_whole, writing
from askwell.mixture.learned_from import CONFIG, MIXTURE, MIXTURE_FILES, TUNED_LM
from askwell.runs.record import (
    CONTROLS,
    DEV_OUTCOMES,
    ENVIRONMENT,
    HISTORY,
    RECORD,
    REMARKS,
    TEST_OUTCOMES,
    TRAIN_GOLDS,
    UNTUNED_OUTCOMES,
    Environment,
    HistoryRecord,
    Remarks,
    RunRecord,
)
from askwell.training.checkpoint import CHECKPOINT
from askwell.views.document import Document, Paragraph, Section, overview
from askwell.views.printable import NONE, counted
from askwell.views.to_files import AsFrame, Records, pandas_frame
from askwell.views.to_text import ShowsItself

_STORED_RUNS = "runs"
"""Stores and demos keep their runs in a folder of this name."""
_ONE_OF_SEVERAL = re.compile(r"(seed|fold)-\d+")
"""What the folders of the runs that were trained together, one for each seed or fold, are called."""


@dataclass(frozen=True, repr=False)
class Run(ShowsItself, AsFrame):
    """A complete run on disk."""

    folder: Path
    record: RunRecord
    remarks: Remarks

    def summary(self) -> Document:
        """Summarise what was run, where it is, and what it scores."""
        shown = self.record.summary()
        return replace(shown, sections=(*shown.sections, Section("", (Paragraph(f"in {self.folder}"),))))

    def records(self) -> Records:
        """Return a row for each test fact: x, y, all right answers, the rank of y, and what was answered."""
        return [asdict(outcome) for outcome in self.test]

    def history_to_pandas(self) -> Any:
        """Return a pandas.DataFrame with a row for each time that dev was scored."""
        return pandas_frame(
            [
                {
                    "pairs": line.pairs,
                    "train_loss": line.train_loss,
                    **{f"dev_{name}": figure for name, figure in line.dev.items()},
                }
                for line in self.record.history
            ]
        )

    def plot(self, ax: Any = None, *, label: str | None = None) -> Any:
        """Plot dev P@1 during tuning, and return the matplotlib axes."""
        from askwell.views.charts import plot_curve

        points = self.record.learning_curve
        if not points:
            raise BadOption(f"{self.folder} has no history of dev scores, so there is no curve")
        return plot_curve(points, best=None, label=label or self.record.spec.label, axes=ax)

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcome of each test fact, by which runs are compared."""
        return self.test

    @cached_property
    def test(self) -> list[Outcome]:
        """The outcome of each test fact."""
        return read_outcomes(self.folder / TEST_OUTCOMES)

    @cached_property
    def dev(self) -> list[Outcome]:
        """The outcome of each dev fact; empty if none were kept."""
        return _outcomes(self.folder / DEV_OUTCOMES)

    @cached_property
    def untuned(self) -> list[Outcome]:
        """The outcome of each test fact before tuning; empty if none were kept."""
        return _outcomes(self.folder / UNTUNED_OUTCOMES)

    @cached_property
    def train_golds(self) -> Mapping[str, tuple[str, ...]]:
        """The x's of the train facts, with all right answers for each; empty if none were kept."""
        path = self.folder / TRAIN_GOLDS
        return read_golds(path) if path.is_file() else {}

    @cached_property
    def controls(self) -> Mapping[str, Mapping[str, Sequence[Outcome]]]:
        """How each control ranks the right answers, by control and split; empty if none were computed."""
        path = self.folder / CONTROLS
        return read_controls(path) if path.is_file() else {}

    def score(self, metric: str) -> float | None:
        """Return the score on test, in the metric's unit; for a run older than the metric, from its outcomes."""
        kept = self.record.test.score(metric)
        return metric_named(metric).mean(self.test) if kept is None and metric != LOG_LOSS else kept

    @property
    def mixture(self) -> Path | None:
        """The folder of the saved mixture; None if nothing was tuned."""
        return self.folder / MIXTURE if (self.folder / MIXTURE / CONFIG).is_file() else None


def write_run(
    folder: Path,
    record: RunRecord,
    outcomes: Mapping[SplitName, Sequence[Outcome]],
    controls: Mapping[str, Mapping[SplitName, Sequence[Outcome]]],
    *,
    untuned: Sequence[Outcome] = (),
    train_golds: Mapping[str, tuple[str, ...]] | None = None,
) -> None:
    """Write a run's files beside its mixture, the record last: it marks the run as complete."""
    write_outcomes(outcomes["test"], folder / TEST_OUTCOMES)
    if "dev" in outcomes:
        write_outcomes(outcomes["dev"], folder / DEV_OUTCOMES)
    if untuned:
        write_outcomes(untuned, folder / UNTUNED_OUTCOMES)
    if train_golds:
        write_golds(train_golds, folder / TRAIN_GOLDS)
    if controls:
        write_controls(controls, folder / CONTROLS)
    write_history(folder, record.history)
    _write_json(folder / ENVIRONMENT, record.environment)
    _write_json(folder / RECORD, record)


def write_history(folder: Path, history: Sequence[HistoryRecord]) -> None:
    """Write a line for each time dev was scored; nothing if it never was."""
    if history:
        lines = [line.model_dump_json(exclude_unset=True) + "\n" for line in history]
        write_whole(folder / HISTORY, "".join(lines))


def write_remarks(folder: Path, *, name: str | None = None, note: str | None = None) -> Remarks:
    """Name a run or note something about it, which replaces what was there; None leaves it as it is."""
    given = {key: text for key, text in (("name", name), ("note", note)) if text is not None}
    if not is_run(folder):
        raise BadFile(folder, "there is no complete run here")
    try:
        remarks = Remarks.model_validate({**_remarks(folder).model_dump(), **given})
    except ValidationError as error:
        raise BadOption(problem_in(error)) from None
    if remarks == Remarks():
        with writing(folder / REMARKS):
            (folder / REMARKS).unlink(missing_ok=True)
    else:
        _write_json(folder / REMARKS, remarks)
    return remarks


def _outcomes(path: Path) -> list[Outcome]:
    return read_outcomes(path) if path.is_file() else []


def _remarks(folder: Path) -> Remarks:
    path = folder / REMARKS
    return read_saved(path, Remarks.model_validate_json) if path.is_file() else Remarks()


def delete_run(folder: Path) -> None:
    """Delete the files of a complete run, and its folder if nothing else is in it; BadOption if it is under way."""
    if not is_run(folder):
        raise BadFile(folder, "there is no complete run here")
    with hold_folder(folder), writing(folder):
        clear_folder(folder)
        for emptied in (folder / MIXTURE, folder):
            with suppress(OSError):  # it is not there, or has files that are not the run's
                emptied.rmdir()


def is_run(folder: Path) -> bool:
    """Tell whether a folder holds a complete run."""
    return (folder / RECORD).is_file()


def read_run(folder: Path) -> Run:
    """Read the run in a folder."""
    record = read_saved(folder / RECORD, RunRecord.model_validate_json)
    environment = read_saved(folder / ENVIRONMENT, Environment.model_validate_json)
    history = read_saved(folder / HISTORY, _history) if (folder / HISTORY).is_file() else ()
    return Run(folder, record.model_copy(update={"environment": environment, "history": history}), _remarks(folder))


class Runs(ShowsItself, list[Run], AsFrame):
    """A list of runs that is displayed as a table, and can be converted to a data frame with a row for each run."""

    @property
    def outcomes(self) -> Outcomes:
        """The test outcomes of all runs, by which they are compared; kept apart by seed if there are several."""
        return outcomes_of(self)

    def records(self) -> Records:
        """Return a row for each run: what was run, and its scores."""
        return [row_of(run) for run in self]

    def summary(self) -> Document:
        """Summarise the scores of each run."""
        rows = self.records()
        shown = shown_columns(rows)
        texts = [tuple(column_text(name, row[name]) for name in shown) for row in rows]
        numbers = tuple(name for name in shown if RUN_COLUMNS[name][0] != "VARCHAR")
        return overview(counted(len(self), "run"), shown, texts, numbers)


@checked
def load_runs(path: Path | str) -> Runs:
    """Load the runs at a path (one run, a folder of runs such as seeds, a store, or a demo), sorted by LM, relation,
    prompts, setting and seed."""
    path = Path(path)
    folders = run_folders(path)
    if not folders:
        raise BadFile(
            path,
            "there is no run here; name a folder that `askwell train` or `askwell baseline` wrote, a folder of such "
            "folders, or a sweep's store",
        )
    return Runs(sorted(map(read_run, folders), key=place_of))


def place_of(run: Run) -> tuple[Any, ...]:
    """Return the key by which runs are sorted."""
    spec = run.record.spec
    fold = fold_of(run.record.relation.split_by) or (0, 0)
    return spec.lm, spec.relation, spec.prompts, spec.setting, spec.control or "", spec.seed, fold, run.record.id


def run_folders(path: Path) -> list[Path]:
    """List the folders of the runs at a path, those of seeds and folds among them, sorted; empty if there are none."""
    if not path.exists():
        raise BadFile(path, f"there is no such folder{run_like(path)}")
    if not path.is_dir():
        raise BadFile(path, "this is a file; name the folder of a run, a folder of runs, or a store")
    if is_run(path):
        return [path]
    parent = path / _STORED_RUNS if (path / _STORED_RUNS).is_dir() else path
    return sorted(run for folder in parent.iterdir() if folder.is_dir() for run in _runs_of(folder))


def _runs_of(folder: Path) -> list[Path]:
    """List the run in a folder, or those of its seeds or folds."""
    if is_run(folder):
        return [folder]
    return [one for one in folder.iterdir() if _ONE_OF_SEVERAL.fullmatch(one.name) and is_run(one)]


def short_folder(folder: Path) -> str:
    """Return the name by which a run is known among others: a seed's or fold's also says of what."""
    folder = folder.resolve()
    return f"{folder.parent.name}/{folder.name}" if _ONE_OF_SEVERAL.fullmatch(folder.name) else folder.name


def outcomes_of(runs: Iterable[Run]) -> Outcomes:
    """Combine the test outcomes of several runs; different seeds are kept apart, so that they can be paired.

    Two runs of the same relation and seed cannot be combined, unless they are folds of it.
    """
    by_seed: dict[int, list[Outcome]] = defaultdict(list)
    others: dict[tuple[int, str], list[Run]] = defaultdict(list)
    for run in runs:
        seed = run.record.spec.seed
        for relation in sorted({outcome.relation for outcome in run.test}):
            for other in others[seed, relation]:
                if not _are_folds(run, other):
                    raise BadFile(
                        run.folder, f"{relation} with seed {seed} also appears in {other.folder}; name one of the two"
                    )
            others[seed, relation].append(run)
        by_seed[seed] += run.test
    return next(iter(by_seed.values())) if len(by_seed) == 1 else dict(by_seed)


def _are_folds(one: Run, other: Run) -> bool:
    first, second = (fold_of(run.record.relation.split_by) for run in (one, other))
    return first is not None and second is not None and first[1] == second[1] and first != second


def check_folder(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Make sure that a run can be written to a folder, and that nothing is overwritten unless the user asks for it."""
    if resume and overwrite:
        raise BadOption("`resume` and `overwrite` cannot be combined", resume="--resume", overwrite="--overwrite")
    is_whole, is_unfinished = folder.is_dir() and is_run(folder), (folder / CHECKPOINT).exists()
    has_mixture = (folder / CONFIG).exists() or (folder / MIXTURE / CONFIG).exists()
    if (is_whole or is_unfinished or has_mixture) and not resume and not overwrite:
        holds = "holds an unfinished run: continue it with `resume`, or start over with `overwrite`"
        if not is_unfinished:
            holds = "already holds a run: name another folder, or replace it with `overwrite`"
        raise BadOption(f"`folder` {folder} {holds}", folder="--out", resume="--resume", overwrite="--overwrite")
    if resume and is_whole and not is_unfinished:
        raise BadOption(f"`resume`: the run in {folder} is finished; there is nothing to continue", resume="--resume")
    need_writable_folder(folder, "--out")


@contextmanager
def hold_folder(folder: Path) -> Generator[None]:
    """Keep other runs out of a folder while the block executes; BadOption if one is under way there.

    The lock is the system's, on the folder itself: nothing is written, and it ends with its process, even if killed.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if os.name != "posix":  # no other system can lock a folder
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise BadOption(
            f"`folder` {folder} is in use by another run: wait for it to end, or name another folder", folder="--out"
        ) from None
    except OSError:  # some network file systems cannot lock folders; there, runs proceed without a lock
        pass
    try:
        yield
    finally:
        os.close(handle)


def clear_folder(folder: Path) -> None:
    """Remove the files of an earlier run, and nothing else."""
    outcomes = (TEST_OUTCOMES, DEV_OUTCOMES, UNTUNED_OUTCOMES, TRAIN_GOLDS, CONTROLS)
    for name in (RECORD, ENVIRONMENT, REMARKS, HISTORY, CHECKPOINT, *outcomes):
        (folder / name).unlink(missing_ok=True)
    for mixture in (folder, folder / MIXTURE):
        for name in MIXTURE_FILES if (mixture / CONFIG).is_file() else ():
            (mixture / name).unlink(missing_ok=True)
    remove_own_files(folder / TUNED_LM)


def _history(lines: bytes) -> tuple[HistoryRecord, ...]:
    return tuple(HistoryRecord.model_validate_json(line) for line in lines.splitlines())


def _write_json(path: Path, content: BaseModel) -> None:
    document = content.model_dump(mode="json")
    write_whole(path, json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False) + "\n")


# ── runs as rows ──────────────────────────────────────────────────────────────────────────────────────────────────────

# The name of each column, its type, and its value.
RUN_COLUMNS: Mapping[str, tuple[str, Callable[[Run], Any]]] = {
    "folder": ("VARCHAR", lambda run: str(run.folder)),
    "name": ("VARCHAR", lambda run: run.remarks.name or None),
    "note": ("VARCHAR", lambda run: run.remarks.note or None),
    "id": ("VARCHAR", attrgetter("record.id")),
    "lm": ("VARCHAR", attrgetter("record.spec.lm")),
    "relation": ("VARCHAR", attrgetter("record.spec.relation")),
    "prompts": ("VARCHAR", attrgetter("record.spec.prompts")),
    "setting": ("VARCHAR", attrgetter("record.spec.setting")),
    "seed": ("BIGINT", attrgetter("record.spec.seed")),
    "control": ("VARCHAR", attrgetter("record.spec.control")),
    **{metric.key: ("DOUBLE", methodcaller("score", name)) for name, metric in METRICS.items()},
    "untuned_P@1": (
        "DOUBLE",
        lambda run: None if run.record.untuned is None else run.record.untuned.score("P@1"),
    ),
    "dev_P@1": ("DOUBLE", lambda run: None if run.record.dev is None else run.record.dev.score("P@1")),
    "facts": ("BIGINT", attrgetter("record.test.facts")),
    "left_out": ("BIGINT", attrgetter("record.test.left_out_count")),
    "n_prompts": ("BIGINT", lambda run: len(run.record.prompts)),
    "effective_prompts": ("DOUBLE", attrgetter("record.effective_prompts")),
    "temperature": ("DOUBLE", attrgetter("record.temperature")),
    "vocabulary": ("VARCHAR", attrgetter("record.test.vocabulary")),
    "candidates": ("VARCHAR", attrgetter("record.spec.candidates")),
    "tuned": ("BOOLEAN", lambda run: run.record.spec.training is not None),
    "baseline": ("VARCHAR", attrgetter("record.spec.baseline")),
    "method": ("VARCHAR", lambda run: run.record.spec.training and run.record.spec.training.method),
    "deep": ("BOOLEAN", attrgetter("record.spec.mixture.deep")),
    "weighting": ("VARCHAR", attrgetter("record.mixture.weighting")),
    "combine": ("VARCHAR", attrgetter("record.spec.mixture.combine")),
    "initial": ("VARCHAR", attrgetter("record.spec.mixture.initial")),
    "begin": ("VARCHAR", attrgetter("record.mixture.begin")),
    "lead_in": ("VARCHAR", attrgetter("record.mixture.lead_in")),
    "prefix": ("BIGINT", attrgetter("record.spec.mixture.prefix")),
    "shots": ("BIGINT", attrgetter("record.mixture.shots")),
    "answers": ("VARCHAR", attrgetter("record.test.answers")),
    "copies": ("BIGINT", attrgetter("record.spec.mixture.copies")),
    "threads": ("BIGINT", attrgetter("record.spec.threads")),
    "device": ("VARCHAR", attrgetter("record.spec.device")),
    "split": ("VARCHAR", attrgetter("record.relation.split_by")),
    "began": ("VARCHAR", lambda run: run.record.environment.began and f"{run.record.environment.began:%Y-%m-%d %H:%M}"),
    "seconds": ("DOUBLE", attrgetter("record.environment.seconds")),
    "askwell": ("VARCHAR", attrgetter("record.environment.askwell")),
}
_SHOWN = ("folder", "lm", "relation", "prompts", "setting", "seed", "untuned_P@1", "P@1", "facts", "began", "seconds")
_SHOWN_IF_ANY = ("name", "control")


def shown_columns(rows: Sequence[Mapping[str, Any]], sort: str | None = None) -> tuple[str, ...]:
    """Return the columns of runs that fit on a screen, and the one that they are sorted by."""
    told = [name for name in _SHOWN_IF_ANY if any(row[name] for row in rows)]
    return tuple(dict.fromkeys([*_SHOWN, *told, *([sort] if sort else [])]))


def row_of(run: Run) -> dict[str, Any]:
    """Return what can be asked about a run, and shown in a table, by column."""
    return {name: value(run) for name, (_, value) in RUN_COLUMNS.items()}


def column_text(name: str, value: object) -> str:
    """Return what stands in a column of a table of runs: of a folder its name, or the start of an id."""
    if value is None:
        return NONE
    if isinstance(value, float):
        decimals = {metric.key: metric.decimals for metric in METRICS.values()}
        return f"{value:.{decimals.get(name, 1)}f}"
    if name == "folder":
        value = short_folder(Path(str(value)))
    return str(value)[:8] if re.fullmatch("[0-9a-f]{64}", str(value)) else str(value)
