"""Engines, which execute the runs of a sweep: in this process, in a pool of worker processes, or on a Ray cluster.

All of them produce the same store. A worker that dies is replaced, and its run is retried. Ctrl-C reaches the whole
process group, but only the sweep acts on it: its workers ignore SIGINT from their first instruction, and the sweep
terminates them itself.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, runtime_checkable

from askwell.errors import BadOption, Failure
from askwell.runs.worker import LMKey, RunFailed, RunOutcome, RunTask

TRIES = 3
"""How many times a run is attempted in total if its worker dies."""

Do = Callable[[RunTask], RunOutcome]


@dataclass(frozen=True)
class Started:
    """A run was given to a worker."""

    task: RunTask


@dataclass(frozen=True)
class Ended:
    """A run is complete, or failed."""

    task: RunTask
    outcome: RunOutcome


@dataclass(frozen=True)
class Lost:
    """The worker of a run died; the run is retried."""

    task: RunTask
    reason: str


@dataclass(frozen=True)
class PutOff:
    """Another sweep is executing the run; it is checked again when the others are done."""

    task: RunTask


Event = Started | Ended | Lost | PutOff


@runtime_checkable
class Engine(Protocol):
    """Executes runs, here or elsewhere."""

    @property
    def workers(self) -> int:
        """How many runs it executes at once."""
        ...

    def run(self, tasks: Sequence[RunTask], do: Do, tell: Callable[[Event], None]) -> None:
        """Execute all runs with `do`, and call `tell` when each begins and ends. On an interrupt, stop all work."""
        ...


class InProcess:
    """Executes runs in this process."""

    workers = 1

    def run(self, tasks: Sequence[RunTask], do: Do, tell: Callable[[Event], None]) -> None:
        """Execute all runs in order."""
        for task in tasks:
            tell(Started(task))
            tell(Ended(task, do(task)))


_SECONDS_BETWEEN_LOOKS = 5.0


def is_installed() -> bool:
    """Tell whether Ray can be imported."""
    return find_spec("ray") is not None


class RayCluster:
    """Executes runs on the machines of a cluster; each run reserves some CPUs and GPUs."""

    def __init__(self, address: str | None, cpus_per_run: float, gpus_per_run: float) -> None:
        if not is_installed():
            raise BadOption("engine ray: Ray is not installed here; get it with: pip install 'askwell[cluster]'")
        self._address, self._cpus, self._gpus = address, cpus_per_run, gpus_per_run
        self._ray = connect_to_ray(address)

    @property
    def workers(self) -> int:
        """How many runs the cluster can execute at once, at its current size."""
        there = self._ray.cluster_resources()
        by_cpus = int(there.get("CPU", 0) / self._cpus)
        return max(1, min(by_cpus, int(there.get("GPU", 0) / self._gpus)) if self._gpus else by_cpus)

    def run(self, tasks: Sequence[RunTask], do: Do, tell: Callable[[Event], None]) -> None:
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
                ready, _ = ray.wait(list(running), timeout=_SECONDS_BETWEEN_LOOKS)
                for answer in ready:
                    task = running.pop(answer)
                    tell(Ended(task, _outcome(ray, answer, task)))
        finally:
            for answer in running:
                ray.cancel(answer, force=True)
            ray.shutdown()


def _outcome(ray: Any, answer: Any, task: RunTask) -> RunOutcome:
    try:
        return ray.get(answer)
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0]
        return RunFailed(task.spec.id, f"Ray gave up after {TRIES} tries: {reason}")


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


# Not forked: a copy of a process with threads (torch's) can hang.
_PROCESSES = multiprocessing.get_context("spawn")


class Pool:
    """Executes runs in several processes at once, keeping runs of one LM in the same process as far as possible."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, tasks: Sequence[RunTask], do: Do, tell: Callable[[Event], None]) -> None:
        """Execute all runs; a run whose worker dies three times is given up."""
        waiting = deque(tasks)
        losses: Counter[str] = Counter()
        idle: list[_Worker] = []
        busy: dict[_Worker, RunTask] = {}
        try:
            while waiting or busy:
                idle = [worker for worker in idle if worker.is_alive]  # one can be killed while it is idle
                while waiting and len(busy) < self.workers:
                    worker = idle.pop() if idle else _Worker(do)
                    task = _next_for(worker, waiting, busy)
                    busy[worker] = task
                    worker.give(task)
                    tell(Started(task))
                wait([sign for worker in busy for sign in worker.signs])
                for worker in [worker for worker in busy if worker.is_ready]:
                    task, outcome = busy.pop(worker), worker.take()
                    if outcome is not None:
                        idle.append(worker)
                        tell(Ended(task, outcome))
                        continue
                    losses[task.spec.id] += 1
                    reason = f"its worker died ({worker.end})"
                    if losses[task.spec.id] < TRIES:
                        waiting.appendleft(task)
                        tell(Lost(task, reason))
                    else:
                        message = f"{reason} {TRIES} times; is there enough memory?"
                        tell(Ended(task, RunFailed(task.spec.id, message)))
        finally:
            for worker in (*idle, *busy):
                worker.stop()


class _Worker:
    """A process, and the LM that it has loaded."""

    def __init__(self, do: Do) -> None:
        self._ours, theirs = _PROCESSES.Pipe()
        self._process = _PROCESSES.Process(target=_serve, args=(theirs, do), daemon=True)
        self.lm: LMKey | None = None
        try:
            with _interrupts_held_back():
                self._process.start()
        except BaseException:  # an interrupt that was held back: nothing else knows of this process yet
            self.stop()
            raise
        finally:
            theirs.close()  # otherwise we would not see it close when the worker dies

    @property
    def signs(self) -> "list[Connection | int]":
        """What to wait on: an answer, or the end of the process."""
        return [self._ours, self._process.sentinel]

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.is_alive()

    @property
    def is_ready(self) -> bool:
        """Whether the worker has answered or died."""
        return self._ours.poll() or not self.is_alive

    @property
    def end(self) -> str:
        """How the process ended."""
        code = self._process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def give(self, task: RunTask) -> None:
        """Give the worker a run to execute."""
        self.lm = task.lm
        with contextlib.suppress(ConnectionError):  # it has just died, as `take` will notice
            self._ours.send(task)

    def take(self) -> RunOutcome | None:
        """Return the outcome of the run; None if the worker died."""
        with contextlib.suppress(EOFError, ConnectionError):  # how the pipe of a dead worker ends
            if self._ours.poll():  # it may have answered before it died
                return self._ours.recv()
        self._process.join()
        return None

    def stop(self) -> None:
        """Terminate the process at once; the run it was working on can be continued."""
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()
        self._ours.close()


def _next_for(worker: _Worker, waiting: "deque[RunTask]", busy: dict[_Worker, RunTask]) -> RunTask:
    """Take the next run of the worker's LM; otherwise of an LM that no other worker has, or with the most runs left."""
    left = Counter(task.lm for task in waiting)
    others = {task.lm for task in busy.values()}
    fewest_loads = max(left, key=lambda lm: (lm not in others, left[lm]))
    chosen = worker.lm if worker.lm in left else fewest_loads
    task = next(task for task in waiting if task.lm == chosen)
    waiting.remove(task)
    return task


@contextlib.contextmanager
def _interrupts_held_back() -> Generator[None]:
    """Hold interrupts back until the block ends; a process started in it begins with SIGINT blocked.

    Otherwise, a worker that is half started when we stop would complain about its broken pipe.
    """
    came: list[int] = []
    handlers: dict[int, Any] = {}
    blocked = None
    if os.name == "posix":
        resource_tracker.ensure_running()  # otherwise starting the first worker starts it, which lifts the block
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        # Only this thread is blocked: another can receive the signal, and Python then runs the handler in the main
        # thread, the only one that can change handlers.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if callable(signal.getsignal(number)):
                    handlers[number] = signal.signal(number, lambda number, _frame: came.append(number))
        yield
    finally:
        if blocked is not None:  # first, while an interrupt is only recorded
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for number in came:
        signal.raise_signal(number)


def _serve(tasks: Connection, do: Do) -> None:
    """Execute runs as a worker until the sweep is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # first, so that a pending signal is dropped
    if os.name == "posix":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_die_with_the_sweep, daemon=True).start()
    while True:
        try:
            task = tasks.recv()
        except (EOFError, ConnectionError):  # the sweep is gone
            return
        outcome = do(task)
        with contextlib.suppress(ConnectionError):
            tasks.send(outcome)


def _die_with_the_sweep() -> None:
    sweep = multiprocessing.parent_process()
    if sweep is not None:
        sweep.join()
        os._exit(1)
