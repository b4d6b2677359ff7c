"""The service without the web: what is served, the queue in front of the LMs, and the training jobs: runs started from
the page or the API, executed one at a time, which can be watched and cancelled.

A job is a run like any other: `runs/run.py` executes it, and its folder is one of the runs that are served.
"""

import asyncio
import re
import threading
import traceback
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from fastapi import Request
from pydantic import Field

from askwell.answers.candidates import Candidates, parse_candidates
from askwell.answers.reply import PromptReply, Reply
from askwell.data.facts import Fact, Relation
from askwell.data.split import rule_with, split_relation
from askwell.data.templates import parse_template
from askwell.data.testbed import PREFIXES, prefix_and_name, testbed_relation
from askwell.errors import AskwellError, UsageError
from askwell.lms.available import ListedLM, list_lms
from askwell.lms.load import load_lm
from askwell.runs.build_spec import build_run_spec
from askwell.runs.folder import hold_folder, is_run
from askwell.runs.record import RunRecord
from askwell.runs.run import Asking, Built, RunProgress, run
from askwell.runs.sources import spread
from askwell.server.catalogue import TESTBED_PROMPTS, Catalogue, Entry
from askwell.server.queue import AskQueue, LMSource, LoadedLMs
from askwell.server.refusals import Explained, NoSuchName, Overloaded, Refused, explain
from askwell.server.schemas import HistoryPoint, JobInfo, TrainRequest
from askwell.server.settings import Settings, folder_of_new_runs, served_folder
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training.checkpoint import CHECKPOINT
from askwell.training.history import TrainingProgress
from askwell.views.printable import counted
from askwell.views.words import PromptWords, nearest_words

_KEPT_JOBS = 200


class Job(JobInfo):
    """A training job and its progress. Its `version` increases with every change."""

    order: TrainRequest = Field(exclude=True)
    prompts: str = Field(exclude=True)
    """What its set of prompts is called."""
    folder: Path | None = Field(default=None, exclude=True)
    version: int = Field(default=0, exclude=True)
    is_cancelled: bool = Field(default=False, exclude=True)
    """Whether it is to stop."""

    @property
    def is_over(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self.state in ("done", "cancelled", "failed")

    def change(self, **what: Any) -> None:
        """Set some of its fields."""
        for name, value in what.items():
            setattr(self, name, value)
        self.version += 1

    def follow(self, event: RunProgress) -> None:
        """Record the progress of its run, which is stopped if the job has been cancelled."""
        if self.is_cancelled:
            raise KeyboardInterrupt
        if isinstance(event, Built):
            self.change(phase="asking with the untuned prompts")
        elif isinstance(event, Asking):
            self.change(phase=f"asking {event.what}", done=event.done, total=event.total)
        elif isinstance(event, TrainingProgress):
            history = [
                HistoryPoint(
                    pairs=line.pairs,
                    train_loss=line.train_loss,
                    dev_p_at_1=line.dev["P@1"],
                    dev_mrr=line.dev.get("MRR"),
                )
                for line in event.history
            ]
            self.change(phase="tuning", done=event.pairs_done, total=event.pairs, history=history)


class Jobs:
    """A bounded queue of jobs, and the thread that executes them."""

    def __init__(self, runs: Path | None, most_waiting: int) -> None:
        self._runs, self._most_waiting = served_folder(runs), most_waiting
        self._lock = threading.Lock()
        self._jobs: dict[str, tuple[Job, Future[None]]] = {}
        self._thread = ThreadPoolExecutor(1, "askwell-training")

    def start(self, order: TrainRequest, prompts: str) -> Job:
        """Queue a job; refuse it if too many are waiting."""
        relation_of(order)  # so that too few facts, or an invalid template, are reported now
        candidates_of(order)
        for text in order.templates:
            parse_template(text)
        job = Job(order=order, prompts=prompts, lm=order.lm, relation=order.relation)
        with self._lock:
            jobs = [one for one, _ in self._jobs.values()]
            waiting = sum(one.state == "waiting" for one in jobs)
            if waiting >= self._most_waiting:
                raise Overloaded(f"{waiting} training jobs are waiting", 30)
            try:
                self._jobs[job.id] = job, self._thread.submit(self._do, job)
            except RuntimeError:
                raise Refused(503, "the service is shutting down") from None
            for old in [one.id for one in jobs if one.is_over][:-_KEPT_JOBS]:
                del self._jobs[old]
        return job

    def all(self) -> list[Job]:
        """Return all jobs, the newest first."""
        with self._lock:
            return [job for job, _ in reversed(self._jobs.values())]

    def find(self, identity: str) -> Job:
        """Return the job with this id."""
        return self._find(identity)[0]

    def _find(self, identity: str) -> "tuple[Job, Future[None]]":
        with self._lock:
            if identity not in self._jobs:
                raise NoSuchName(f"there is no training job {identity[:40]!r}")
            return self._jobs[identity]

    def cancel(self, identity: str) -> Job:
        """Stop a job: the best state so far is saved as its folder's mixture, and the job can be started again."""
        job, future = self._find(identity)
        job.is_cancelled = True
        if future.cancel():
            job.change(state="cancelled", phase="cancelled", message="It was cancelled before it began.")
        return job

    def close(self) -> None:
        """Cancel all jobs and end the thread."""
        self._thread.shutdown(wait=False)
        for job in self.all():
            if not job.is_over:
                self.cancel(job.id)
        self._thread.shutdown()

    def _do(self, job: Job) -> None:
        job.change(state="running", phase="loading the LM")
        try:
            message = self._train(job)
            mixture = None if job.folder is None or is_run(self._runs) else job.folder.name
            job.change(state="done", phase="done", message=message, mixture=mixture)
        except KeyboardInterrupt:
            kept = " The best state so far is kept; starting the same again continues it." if job.history else ""
            job.change(state="cancelled", phase="cancelled", message=f"It was cancelled.{kept}")
        except AskwellError as error:
            job.change(state="failed", phase="failed", message=str(error))
        except Exception:  # a bug ends the job, not the service
            job.change(state="failed", phase="failed", message="It failed; the service's log says why.")
            traceback.print_exc()

    def _train(self, job: Job) -> str:
        """Execute the run of a job, and return what there is to say about it."""
        order, relation, candidates = job.order, relation_of(job.order), candidates_of(job.order)
        # A separate LM: questions are answered meanwhile in another thread, and hooks on layers must not be shared.
        lm = load_lm(order.lm)
        spec = build_run_spec(
            lm,
            relation,
            [parse_template(text) for text in order.templates],
            mixture=MixtureSpec(deep=order.deep, seed=order.seed, shots=order.shots),
            training=TrainingSpec(pairs=order.pairs, classify=candidates is not None),
            candidates=candidates,
            prompts=job.prompts,
        )
        folder = folder_of_new_runs(self._runs) / f"{_slug(order.relation)}-{spec.id[:12]}"
        job.change(folder=folder)
        if folder.is_dir() and is_run(folder):
            return "This run already existed."
        how: dict[str, Any] = {"candidates": candidates, "untuned": True}
        with hold_folder(folder):
            resume = (folder / CHECKPOINT).is_file()
            return _scored(run(spec, lm, relation, folder, resume=resume, progress=job.follow, **how))


def _scored(record: RunRecord) -> str:
    """Say what a run scores on test, and how little that is where its facts are few."""
    facts, score = counted(record.test.facts, "test fact"), record.test.micro["P@1"]
    before = "" if record.untuned is None else f", {record.untuned.micro['P@1']:.1f} % before tuning"
    kept = (
        f" No step of tuning their vectors was better on dev: the prompts were kept {record.as_written}."
        if record.as_written
        else ""
    )
    return f"Of {facts}, {score:.1f} % answered correctly{before}.{kept} {record.test.doubt_text}".strip()


def relation_of(order: TrainRequest) -> Relation:
    """Return the relation to train on: one of the testbed, with its own splits, or the given facts, split."""
    if order.relation.startswith(PREFIXES):
        if order.facts or order.split is not None:
            raise UsageError(f"{order.relation[:80]} has its own facts: leave out facts, or choose another name")
        return testbed_relation(order.relation)
    if not order.facts:
        raise UsageError("there are no facts: give pairs of x and y")
    facts = [Fact(pair.x.strip(), pair.y.strip(), aliases=tuple(pair.aliases)) for pair in order.facts]
    seed = order.seed if order.split_seed is None else order.split_seed
    return split_relation(order.relation, facts, rule_with("random", order.split), seed)


def candidates_of(order: TrainRequest) -> Candidates | None:
    """Return the candidates that answers are chosen from; None if anything can be answered."""
    return parse_candidates("\n".join(order.candidates), Path("candidates")) if order.candidates else None


def _slug(name: str) -> str:
    """Turn a name into letters, digits and hyphens, for a folder."""
    return re.sub(r"[^a-z0-9]+", "-", prefix_and_name(name)[1].lower()).strip("-")[:40] or "run"


T = TypeVar("T")


class Service:
    """Everything that requests can access."""

    def __init__(self, settings: Settings, jobs: Jobs | None = None) -> None:
        self.settings = settings
        self.catalogue = Catalogue(settings.runs)
        self.loaded = LoadedLMs(settings.memory)
        self.queue = AskQueue(self.loaded, settings)
        self.jobs = jobs or Jobs(settings.runs, settings.waiting_jobs)

    def ask(self, name: str, xs: Sequence[str], top: int = 10) -> "Future[list[list[Reply]]]":
        """Return a future of the answers of a mixture to each x."""
        return self.queue.ask(self.catalogue.find(name).askable, xs, top)

    def words(self, entry: Entry, put_back: int = 0) -> "Future[list[PromptWords]]":
        """Return a future of the prompts of a mixture in words, and of what is lost to so many dev facts when a vector
        is put back to its start."""
        askable, source = entry.askable, entry.source
        facts = [Fact(one.x, one.y) for one in spread([] if source is None else source.dev, put_back)]
        return self.queue.call(lambda lms: nearest_words(lms.get(askable.lm).mixture(askable), facts=facts))

    def behind(self, entry: Entry, x: str) -> "Future[list[PromptReply]]":
        """Return a future of the weight of each prompt of a mixture for an x, and what it answers by itself."""
        askable = entry.askable
        return self.queue.call(lambda lms: lms.get(askable.lm).mixture(askable).answering().prompts_behind(x))

    def lms(self) -> list[ListedLM]:
        """Return the available LMs."""
        return [lm for lm in list_lms() if lm.ready]

    def lm_source(self, name: str) -> LMSource:
        """Return where the LM named in a request can be loaded from; it must be one of those available."""
        known = {lm.name for lm in self.lms()}
        if name not in known:
            raise NoSuchName(f"there is no LM {name[:80]!r} here; choose from {', '.join(sorted(known))}")
        return LMSource(name)

    def train(self, order: TrainRequest, prompts: str = "given") -> Job:
        """Start a training job; `prompts` is what its set of prompts is called."""
        if not self.settings.training:
            raise Refused(403, "training is switched off here")
        self.lm_source(order.lm)
        return self.jobs.start(order, prompts)

    def tune_testbed(self, entry: Entry) -> Job:
        """Start tuning the testbed's prompts of an entry."""
        if entry.source is not None or not entry.relation.startswith(PREFIXES):
            raise UsageError(f"{entry.name} does not belong to the testbed")
        templates = [str(template) for template in entry.templates]
        return self.train(TrainRequest(lm=entry.lm, relation=entry.relation, templates=templates), TESTBED_PROMPTS)

    def explain(self, error: Exception) -> Explained:
        """Return what a client is told about an error, without paths of this machine."""
        explained = explain(error)
        return replace(explained, sentence=self.catalogue.without_path(explained.sentence))

    def close(self) -> None:
        """Stop training, finish pending requests, and accept no more."""
        self.jobs.close()
        self.queue.close()


def service_of(request: Request) -> Service:
    """Return the service that answers a request."""
    return request.app.state.service


async def answered(request: Request, future: "Future[T]") -> T:
    """Await the result of a future, which is cancelled if the client disconnects first."""
    answer = asyncio.wrap_future(future)  # if this is cancelled, so is the other
    if answer.done():
        return answer.result()
    gone = asyncio.ensure_future(_gone(request))
    gone.add_done_callback(lambda _: answer.cancel())
    try:
        return await answer
    except asyncio.CancelledError:
        if gone.done() and not gone.cancelled():
            raise Refused(499, "the client disconnected") from None
        raise
    finally:
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
