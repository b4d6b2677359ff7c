"""Training jobs: runs started from the page or the API, executed one at a time, which can be watched and cancelled.

A job is a run like any other: `runs/run.py` executes it, and its folder is one of the runs that are served.
"""

import re
import threading
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from askwell.data.facts import Fact, Relation
from askwell.data.split import split_facts
from askwell.data.templates import Template
from askwell.data.testbed import PREFIXES, prefix_and_name, testbed_relation
from askwell.errors import AskwellError, UsageError
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.runs.build_spec import build_run_spec
from askwell.runs.folder import is_run
from askwell.runs.run import Asking, Built, RunProgress, run
from askwell.server.loaded import LMSource
from askwell.server.queue import raise_later
from askwell.server.refusals import Closing, NoSuchName, Overloaded
from askwell.server.settings import folder_of_new_runs, served_folder
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training.checkpoint import CHECKPOINT
from askwell.training.history import TrainingProgress

JobState = Literal["waiting", "running", "done", "cancelled", "failed"]
_KEPT_JOBS = 200


@dataclass(frozen=True)
class Order:
    """What is to be trained."""

    lm: LMSource
    relation: str
    """The name of the new relation, or of one of the testbed's."""
    facts: tuple[Fact, ...]
    """All facts, to be split; none for a relation of the testbed, which has its own splits."""
    templates: tuple[Template, ...]
    mixture: MixtureSpec = MixtureSpec()  # noqa: RUF009 - frozen
    training: TrainingSpec = TrainingSpec()  # noqa: RUF009 - frozen
    prompts: str = "given"

    def read(self) -> Relation:
        """Return the relation, split."""
        if self.relation.startswith(PREFIXES):
            return testbed_relation(self.relation)
        train, dev, test = split_facts(self.facts, "random", self.mixture.seed)
        removed = len(self.facts) - len(train) - len(dev) - len(test)
        return Relation.of(self.relation, train, dev, test, removed=removed)


@dataclass
class Job:
    """A training job and its progress. Its `version` increases with every change."""

    order: Order
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    state: JobState = "waiting"
    phase: str = "waiting for its turn"
    done: int = 0
    total: int = 0
    """The total for the phase, in (fact, prompt) pairs or facts."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """For each time that dev was scored: pairs, train_loss, P@1 and MRR."""
    message: str = ""
    folder: Path | None = None
    version: int = 0

    @property
    def is_over(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self.state in ("done", "cancelled", "failed")

    def change(self, **what: Any) -> None:
        """Set some of its fields."""
        for name, value in what.items():
            setattr(self, name, value)
        self.version += 1


@runtime_checkable
class JobBoard(Protocol):
    """Where jobs are started and watched: `Jobs` in this process, or those of another process."""

    def start(self, order: Order) -> Job:
        """Start a job."""
        ...

    def all(self) -> list[Job]:
        """Return all jobs, the newest first."""
        ...

    def find(self, identity: str) -> Job:
        """Return the job with this id."""
        ...

    def cancel(self, identity: str) -> Job:
        """Cancel a job."""
        ...

    def close(self) -> None:
        """Stop what belongs to this process."""
        ...


class Jobs:
    """A bounded queue of jobs, and the thread that executes them."""

    def __init__(self, runs: Path | None, most_waiting: int, load: Callable[..., FrozenLM] = load_lm) -> None:
        self._runs, self._most_waiting, self._load = served_folder(runs), most_waiting, load
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._jobs: dict[str, Job] = {}
        self._stops: dict[str, threading.Event] = {}
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self, order: Order) -> Job:
        """Queue a job; refuse it if too many are waiting."""
        order.read()  # so that too few facts are reported now
        with self._changed:
            if self._closing:
                raise Closing("the service is shutting down")
            if len(self._waiting) >= self._most_waiting:
                raise Overloaded(f"{len(self._waiting)} training jobs are waiting", 30)
            job = Job(order)
            self._jobs[job.id], self._stops[job.id] = job, threading.Event()
            self._waiting.append(job)
            for old in [one.id for one in self._jobs.values() if one.is_over][:-_KEPT_JOBS]:
                del self._jobs[old], self._stops[old]
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="askwell-training", daemon=True)
                self._thread.start()
            self._changed.notify()
        return job

    def all(self) -> list[Job]:
        """Return all jobs, the newest first."""
        with self._changed:
            return list(reversed(self._jobs.values()))

    def find(self, identity: str) -> Job:
        """Return the job with this id."""
        with self._changed:
            if identity not in self._jobs:
                raise NoSuchName(f"there is no training job {identity[:40]!r}")
            return self._jobs[identity]

    def cancel(self, identity: str) -> Job:
        """Stop a job: the best state so far is saved as its folder's mixture, and the job can be started again."""
        job = self.find(identity)
        with self._changed:
            self._stops[identity].set()
            if job in self._waiting:
                self._waiting.remove(job)
                job.change(state="cancelled", phase="cancelled", message="It was cancelled before it began.")
        return job

    def close(self) -> None:
        """Cancel all jobs and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        for job in self.all():
            if not job.is_over:
                self.cancel(job.id)
        if self._thread is not None:
            self._thread.join()

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────────────────

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if not self._waiting:
                    return
                job = self._waiting.popleft()
                job.change(state="running", phase="loading the LM")
            try:
                self._do(job)
            except KeyboardInterrupt:
                kept = " The best state so far is kept; starting the same again continues it." if job.history else ""
                job.change(state="cancelled", phase="cancelled", message=f"It was cancelled.{kept}")
            except AskwellError as error:
                job.change(state="failed", phase="failed", message=str(error))
            except Exception as error:  # a bug ends the job, not the service; its traceback goes to stderr
                job.change(state="failed", phase="failed", message="It failed; the service's log says why.")
                raise_later(error)

    def _do(self, job: Job) -> None:
        order = job.order
        relation = order.read()
        # A separate LM: questions are answered meanwhile in another thread, and hooks on layers must not be shared.
        lm = self._load(order.lm.name, revision=order.lm.revision, tokenizer=order.lm.tokenizer)
        spec = build_run_spec(
            lm, relation, order.templates, mixture=order.mixture, training=order.training, prompts=order.prompts
        )
        folder = folder_of_new_runs(self._runs) / f"{_slug(order.relation)}-{spec.id[:12]}"
        job.change(folder=folder)
        if folder.is_dir() and is_run(folder):
            job.change(state="done", phase="done", message="This run already existed.")
            return
        split_by = None if order.relation.startswith(PREFIXES) else "random"
        resume = (folder / CHECKPOINT).is_file()
        tell = _Telling(job, self._stops[job.id])
        run(spec, lm, relation, folder, resume=resume, untuned=True, split_by=split_by, progress=tell)
        job.change(state="done", phase="done", message="")


class _Telling:
    """Records a run's progress in its job, and stops the run if the job is cancelled."""

    def __init__(self, job: Job, stop: threading.Event) -> None:
        self._job, self._stop = job, stop

    def __call__(self, event: RunProgress) -> None:
        if self._stop.is_set():
            raise KeyboardInterrupt
        if isinstance(event, Built):
            self._job.change(phase="asking with the untuned prompts")
        elif isinstance(event, Asking):
            self._job.change(phase=f"asking {event.what}", done=event.done, total=event.total)
        elif isinstance(event, TrainingProgress):
            lines = [
                {
                    "pairs": line.pairs,
                    "train_loss": line.train_loss,
                    "P@1": line.dev["P@1"],
                    "MRR": line.dev.get("MRR"),
                }
                for line in event.history
            ]
            self._job.change(phase="tuning", done=event.pairs_done, total=event.pairs, history=lines)


def facts_of(pairs: Sequence[tuple[str, str]]) -> tuple[Fact, ...]:
    """Convert pairs to facts; refuse an empty x or y."""
    for number, (x, y) in enumerate(pairs, start=1):
        if not x.strip() or not y.strip():
            raise UsageError(f"pair {number} has an empty {'x' if not x.strip() else 'y'}")
    return tuple(Fact(x.strip(), y.strip()) for x, y in pairs)


def _slug(name: str) -> str:
    """Turn a name into letters, digits and hyphens, for a folder."""
    return re.sub(r"[^a-z0-9]+", "-", prefix_and_name(name)[1].lower()).strip("-")[:40] or "run"
