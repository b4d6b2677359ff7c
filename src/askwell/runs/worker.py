"""A sweep's worker: what it is given, what it does, and what it returns."""

import tempfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from askwell.answers.candidates import Candidates
from askwell.data.facts import Relation
from askwell.errors import AskwellError, WrongLM
from askwell.lms.changed import control_lm
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.lms.machine import limited_threads
from askwell.prompts.context import settle
from askwell.runs.record import RunRecord
from askwell.runs.run import run, templates_of
from askwell.runs.store import FailedRun, Store, UnderWay, unfinished_run
from askwell.specs.run_spec import ControlKind, DeviceKind, Digits, RunSpec


@dataclass(frozen=True)
class LMKey:
    """Runs with the same key share a loaded LM."""

    name: str
    revision: str | None
    tokenizer: str | None
    device: DeviceKind
    dtype: Digits
    compiled: bool


@dataclass(frozen=True)
class RunTask:
    """A run with everything a worker needs except the LM, so that it can be executed where our files are missing."""

    spec: RunSpec
    lm: LMKey
    relation: Relation
    candidates: Candidates | None
    store: Store
    """As seen from where the sweep was planned."""


@dataclass(frozen=True)
class RunDone:
    """A run that is complete."""

    id: str
    p_at_1: float
    seconds: float
    files: Mapping[str, bytes] | None = None
    """The files of the run, if the worker does not see the store; None if it has put them there."""


@dataclass(frozen=True)
class RunElsewhere:
    """A run that another process is executing in the same store."""

    id: str


RunOutcome = RunDone | FailedRun | RunElsewhere

_loaded: dict[LMKey, FrozenLM] = {}
"""The LM of the last run: a worker loads it once and keeps it while its runs use the same one."""
_controls: dict[tuple[LMKey, ControlKind, int], FrozenLM] = {}
"""The control LM of the last run that used one, beside the LM that it is made from."""


def do_run(task: RunTask) -> RunOutcome:
    """Execute a run. If the worker can see the store, the run is put there; otherwise its files are returned."""
    try:
        return _do(task)
    except UnderWay:
        return RunElsewhere(task.spec.id)
    except AskwellError as error:
        return FailedRun.of(task.spec, str(error))
    except Exception as error:  # one failure must not cost hours of other runs; the traceback is kept
        return FailedRun.of(task.spec, f"{type(error).__name__}: {error}", traceback.format_exc())


def lm_of(task: RunTask) -> FrozenLM:
    """Load the LM of a run, checked against the plan; for a control, the LM that knows nothing."""
    key = task.lm
    if key not in _loaded:
        _loaded.clear()  # before the next is loaded: two may not fit
        _controls.clear()
        _loaded[key] = load_lm(**asdict(key))
    lm = _loaded[key]
    if lm.identity.digest != task.spec.lm_sha256:
        raise WrongLM(f"{key.name} is a different LM here than where the sweep was planned")
    kind, seed = task.spec.control, task.spec.seed
    if kind is None:
        return lm
    if (key, kind, seed) not in _controls:
        _controls.clear()
        _controls[key, kind, seed] = control_lm(lm, kind, seed)
    return _controls[key, kind, seed]


def done_before(task: RunTask) -> RunDone | None:
    """Return the run if the store already has it but it was not reported: its worker died in between, or another sweep
    executed it."""
    if not task.store.run_folder(task.spec.id).is_dir():
        return None
    return _done(task.store.read(task.spec.id).record)


def _do(task: RunTask) -> RunDone:
    spec, store = task.spec, task.store
    is_shared = store.is_here()
    if is_shared and (there := done_before(task)) is not None:
        return there
    began = time.monotonic()
    with limited_threads(spec.threads):
        lm = lm_of(task)
        # A control is asked exactly as the LM that it is made from, so the choice is that LM's.
        mixture = settle(spec.mixture, _loaded[task.lm], task.relation, templates_of(spec)) if spec.control else None
    loading = round(time.monotonic() - began, 3)
    with (
        tempfile.TemporaryDirectory(prefix="askwell-") as elsewhere,
        unfinished_run(spec.id, store.unfinished if is_shared else Path(elsewhere), alone=True) as unfinished,
    ):
        if is_shared and (there := done_before(task)) is not None:  # another process has just finished it
            return there
        record = run(
            spec,
            lm,
            task.relation,
            unfinished.result,
            candidates=task.candidates,
            checkpoints=unfinished.folder,
            resume=True,
            mixture=mixture,
            seconds_to_load=loading,
        )
        if is_shared:
            unfinished.finish(store.run_folder(spec.id))
        return _done(record, None if is_shared else _files_in(unfinished.result))


def _done(record: RunRecord, files: Mapping[str, bytes] | None = None) -> RunDone:
    return RunDone(record.id, record.test.micro["P@1"], record.environment.seconds or 0.0, files)


def _files_in(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
