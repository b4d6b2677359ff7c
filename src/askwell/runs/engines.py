"""Engines, which execute the runs of a sweep: in this process, in a pool of worker processes, or on a Ray cluster.

Each executes some runs, and tells when one begins and ends; on an interrupt, it stops all work. All of them produce the
same store. A worker that dies is replaced, and its run is retried. Ctrl-C reaches the whole process group, but only the
sweep acts on it: its workers ignore SIGINT from their first instruction, and the sweep terminates them itself.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from askwell.errors import BadFile, Failure
from askwell.lms.machine import available_threads
from askwell.runs.plan import Plan
from askwell.runs.store import FailedRun, Store
from askwell.runs.worker import LMKey, RunElsewhere, RunOutcome, RunTask, do_run, done_before
from askwell.specs.run_spec import SweepSpec

TRIES = 3
"""How many times a run is attempted in total if its worker dies."""

Do = Callable[[RunTask], RunOutcome]


@dataclass(frozen=True)
class Started:
    """A run was given to a worker."""

    task: RunTask


@dataclass(frozen=True)
class Ended:
    """A run is complete, failed, or left to another sweep until the others are done."""

    task: RunTask
    outcome: RunOutcome


@dataclass(frozen=True)
class Lost:
    """The worker of a run died; the run is retried."""

    task: RunTask
    reason: str


Event = Started | Ended | Lost
Tell = Callable[[Event], None]


class InProcess:
    """Executes runs in this process."""

    workers = 1

    def run(self, tasks: Sequence[RunTask], do: Do, tell: Tell) -> None:
        """Execute all runs in order."""
        for task in tasks:
            tell(Started(task))
            tell(Ended(task, do(task)))


# Not forked: a copy of a process with threads (torch's) can hang.
_PROCESSES = multiprocessing.get_context("spawn")


@dataclass(eq=False)
class _Worker:
    """A process, our end of the pipe to it, and the LM that it has loaded."""

    process: BaseProcess
    pipe: Connection
    lm: LMKey | None = None


class Pool:
    """Executes runs in several processes at once, keeping runs of one LM in the same process as far as possible."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, tasks: Sequence[RunTask], do: Do, tell: Tell) -> None:
        """Execute all runs; a run whose worker dies three times is given up."""
        waiting = deque(tasks)
        losses: Counter[str] = Counter()
        idle: list[_Worker] = []
        busy: dict[_Worker, RunTask] = {}
        started: list[_Worker] = []
        try:
            while waiting or busy:
                while waiting and len(busy) < self.workers:
                    worker = idle.pop() if idle else _start(do, started)
                    task = busy[worker] = _next_for(worker, waiting, busy)
                    worker.lm = task.lm
                    with contextlib.suppress(ConnectionError):  # it has just died, as we will see below
                        worker.pipe.send(task)
                    tell(Started(task))
                ready = wait([worker.pipe for worker in busy])  # a pipe also ends when its worker dies
                for worker in [worker for worker in busy if worker.pipe in ready]:
                    task = busy.pop(worker)
                    try:
                        outcome = worker.pipe.recv()
                    except (EOFError, ConnectionError):
                        losses[task.spec.id] += 1
                        reason = f"its worker died ({_end_of(worker)})"
                        if losses[task.spec.id] < TRIES:
                            waiting.appendleft(task)
                            tell(Lost(task, reason))
                            continue
                        outcome = FailedRun.of(task.spec, f"{reason} {TRIES} times; is there enough memory?")
                    else:
                        idle.append(worker)
                    tell(Ended(task, outcome))
        finally:
            for worker in started:  # at once; the runs they were working on can be continued
                if worker.process.pid is not None:
                    worker.process.kill()
                    worker.process.join()
                worker.pipe.close()


def _start(do: Do, started: list[_Worker]) -> _Worker:
    """Start a worker that executes runs with `do`; it is among those started even if an interrupt comes meanwhile."""
    ours, theirs = _PROCESSES.Pipe()
    worker = _Worker(_PROCESSES.Process(target=_serve, args=(theirs, do), daemon=True), ours)
    started.append(worker)
    try:
        with _interrupts_held_back():
            worker.process.start()
    finally:
        theirs.close()  # otherwise the pipe would not end when the worker dies
    return worker


def _next_for(worker: _Worker, waiting: "deque[RunTask]", busy: dict[_Worker, RunTask]) -> RunTask:
    """Take the next run of the worker's LM; otherwise of an LM that no other worker has, or with the most runs left."""
    left = Counter(task.lm for task in waiting)
    others = {task.lm for task in busy.values()}
    fewest_loads = max(left, key=lambda lm: (lm not in others, left[lm]))
    chosen = worker.lm if worker.lm in left else fewest_loads
    task = next(task for task in waiting if task.lm == chosen)
    waiting.remove(task)
    return task


def _end_of(worker: _Worker) -> str:
    """Say how a worker that has closed its pipe ended."""
    worker.process.join()
    code = worker.process.exitcode
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


@contextlib.contextmanager
def _interrupts_held_back() -> Generator[None]:
    """Hold interrupts back until the block ends; a process started in it begins with SIGINT blocked.

    Otherwise, a worker that is half started when we stop would complain about its broken pipe.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread() or os.name != "posix":
        yield  # only the main thread is interrupted
        return
    resource_tracker.ensure_running()  # otherwise starting the first worker starts it, which lifts the block
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    # Another thread can still receive the signal, and Python then runs the handler in this one.
    handler = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # first, while an interrupt is only recorded
        signal.signal(signal.SIGINT, handler)
    for number in came:
        signal.raise_signal(number)


def _serve(tasks: Connection, do: Do) -> None:
    """Execute runs as a worker until the sweep is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # first, so that a pending signal is dropped
    if os.name == "posix":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_die_with_the_sweep, daemon=True).start()
    with contextlib.suppress(EOFError, ConnectionError):  # the sweep is gone
        while True:
            tasks.send(do(tasks.recv()))


def _die_with_the_sweep() -> None:
    sweep = multiprocessing.parent_process()
    if sweep is not None:
        sweep.join()
        os._exit(1)


def is_installed() -> bool:
    """Tell whether Ray can be imported."""
    return find_spec("ray") is not None


class RayCluster:
    """Executes runs on the machines of a cluster; each run reserves some CPUs and GPUs."""

    def __init__(self, address: str | None, cpus_per_run: float, gpus_per_run: float) -> None:
        self._address, self._cpus, self._gpus = address, cpus_per_run, gpus_per_run
        self._ray = connect_to_ray(address)

    @property
    def workers(self) -> int:
        """How many runs the cluster can execute at once, at its current size."""
        there = self._ray.cluster_resources()
        by_cpus = int(there.get("CPU", 0) / self._cpus)
        return max(1, min(by_cpus, int(there.get("GPU", 0) / self._gpus)) if self._gpus else by_cpus)

    def run(self, tasks: Sequence[RunTask], do: Do, tell: Tell) -> None:
        """Execute all runs in order, as many at once as there is room for."""
        if not self._ray.is_initialized():  # shut down after earlier runs
            self._ray = connect_to_ray(self._address)
        ray = self._ray
        # Ray retries only when a worker or node was lost; to Ray, a run that fails is not an error.
        remote = ray.remote(num_cpus=self._cpus, num_gpus=self._gpus, max_retries=TRIES - 1)(do)
        waiting, running = list(reversed(tasks)), {}
        try:
            while waiting or running:
                while waiting and len(running) < self.workers + 1:  # one more, so that no worker waits for the next
                    task = waiting.pop()
                    running[remote.remote(task)] = task
                    tell(Started(task))
                ready, _ = ray.wait(list(running), timeout=5.0)  # in which the cluster may have grown
                for answer in ready:
                    task = running.pop(answer)
                    try:
                        outcome = ray.get(answer)
                    except ray.exceptions.RayError as error:
                        reason = str(error).strip().splitlines()[0]
                        outcome = FailedRun.of(task.spec, f"Ray gave up after {TRIES} tries: {reason}")
                    tell(Ended(task, outcome))
        finally:
            for answer in running:
                ray.cancel(answer, force=True)
            ray.shutdown()


def connect_to_ray(address: str | None) -> Any:
    """Return Ray, connected to the cluster at an address, or to a new one on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics are sent
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    try:
        dashboard = None if address else False
        ray.init(address=address, log_to_driver=False, configure_logging=False, include_dashboard=dashboard)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        where = f"address {address}" if address else "engine ray"
        raise Failure(f"{where}: no Ray cluster is available ({str(error).strip().splitlines()[0]})") from error
    return ray


Engine = InProcess | Pool | RayCluster


def check_engine(sweep: SweepSpec, file: Path) -> None:
    """Refuse an unsuitable engine before any work begins; nothing is started."""
    if sweep.engine == "ray" and not is_installed():
        raise BadFile(file, "engine: Ray is not installed here; get it with: pip install 'askwell[cluster]'")
    if sweep.engine != "pool" and sweep.workers is not None:
        raise BadFile(file, f"workers: only the engine pool has workers; the engine is {sweep.engine}")
    if sweep.engine != "ray":
        for key in ("address", "cpus_per_run", "gpus_per_run"):
            if getattr(sweep, key) is not None:
                raise BadFile(file, f"{key}: only the engine ray uses it; the engine is {sweep.engine}")


def choose_engine(sweep: SweepSpec) -> Engine:
    """Return the engine, ready to run."""
    if sweep.engine == "in-process":
        return InProcess()
    if sweep.engine == "pool":
        return Pool(sweep.workers or max(1, available_threads() // sweep.threads))
    gpus = sweep.gpus_per_run if sweep.gpus_per_run is not None else float(sweep.device == "cuda")
    return RayCluster(sweep.address, sweep.cpus_per_run or float(sweep.threads), gpus)


def run_plan(plan: Plan, engine: Engine, store: Store, tell: Tell) -> list[FailedRun]:
    """Execute all runs that are not yet done; return those that failed, which are also recorded in the store.

    Runs that another sweep has under way are left to it, and executed here only if it ends without completing them.
    """
    failed: list[FailedRun] = []
    elsewhere: list[RunTask] = []
    store = store.make()
    store.clean(but=frozenset(task.spec.id for task in plan.to_do))

    def keep(event: Event) -> None:
        if isinstance(event, Ended):
            task, outcome = event.task, event.outcome
            if isinstance(outcome, FailedRun) and (there := done_before(task)) is not None:
                event = Ended(task, there)
            elif isinstance(outcome, RunElsewhere):
                elsewhere.append(task)
            elif isinstance(outcome, FailedRun):
                failed.append(outcome)
                store.note_failure(outcome)
            elif outcome.files is not None:
                store.put(outcome.id, outcome.files)
        tell(event)

    seen_from_anywhere = Store(store.folder.resolve(), store.id)
    to_do = [replace(task, store=seen_from_anywhere) for task in plan.to_do]
    while to_do:
        engine.run(to_do, do_run, keep)
        to_do = _left_over(elsewhere, store, tell)
        elsewhere.clear()
    store.clean()
    return failed


def _left_over(tasks: Iterable[RunTask], store: Store, tell: Tell) -> list[RunTask]:
    """Wait for other sweeps to finish with these runs; return those that they have not completed."""
    left: list[RunTask] = []
    for task in tasks:
        while store.is_under_way(task.spec.id):
            time.sleep(0.5)
        there = done_before(task)
        if there is None:
            left.append(task)
        else:
            tell(Ended(task, there))
    return left
