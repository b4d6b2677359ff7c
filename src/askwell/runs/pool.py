"""The engine of worker processes on this machine. A worker that dies is replaced, and its run is tried again."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait

from askwell.runs.engines import TRIES, Do, Ended, Event, Lost, Started
from askwell.runs.worker import LMKey, RunFailed, RunOutcome, RunTask

# Not forked: a copy of a process with threads (torch's) can hang.
_PROCESSES = multiprocessing.get_context("spawn")


class Pool:
    """Does runs in so many processes at once, runs of one LM in the same process as far as possible."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, tasks: Sequence[RunTask], do: Do, tell: Callable[[Event], None]) -> None:
        """Does all runs; a run whose worker dies three times is given up."""
        waiting = deque(tasks)
        losses: Counter[str] = Counter()
        idle = [_Worker(do) for _ in range(min(self.workers, len(tasks)))]
        busy: dict[_Worker, RunTask] = {}
        try:
            while waiting or busy:
                while idle and waiting:
                    worker = idle.pop()
                    if not worker.is_alive:  # killed while it had nothing to do
                        worker = _Worker(do)
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
                    idle.append(_Worker(do))
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
        self._process.start()
        theirs.close()  # else we would not see it close when the worker dies
        self.lm: LMKey | None = None

    @property
    def signs(self) -> "list[Connection | int]":
        """What to wait on: an answer, or the end of the process."""
        return [self._ours, self._process.sentinel]

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
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
        """Lets the worker do a run."""
        self.lm = task.lm
        with contextlib.suppress(ConnectionError):  # it has just died, which is seen when its answer is taken
            self._ours.send(task)

    def take(self) -> RunOutcome | None:
        """What came out of the run; None if the worker died."""
        with contextlib.suppress(EOFError, ConnectionError):  # so ends the pipe of a dead worker
            if self._ours.poll():  # there can be an answer from before it died
                return self._ours.recv()
        self._process.join()
        return None

    def stop(self) -> None:
        """Ends the process at once; what it works on can be gone on with."""
        self._process.kill()
        self._process.join()
        self._ours.close()


def _next_for(worker: _Worker, waiting: "deque[RunTask]", busy: dict[_Worker, RunTask]) -> RunTask:
    """The next run of the worker's LM; else of an LM that no other worker has, or has the most runs left."""
    left = Counter(task.lm for task in waiting)
    others = {task.lm for task in busy.values()}
    fewest_loads = max(left, key=lambda lm: (lm not in others, left[lm]))
    chosen = worker.lm if worker.lm in left else fewest_loads
    task = next(task for task in waiting if task.lm == chosen)
    waiting.remove(task)
    return task


def _serve(tasks: Connection, do: Do) -> None:
    """The life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the sweep ends its workers itself
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_die_with_the_sweep, daemon=True).start()
    while True:
        try:
            task = tasks.recv()
        except EOFError:
            return
        tasks.send(do(task))


def _die_with_the_sweep() -> None:
    sweep = multiprocessing.parent_process()
    if sweep is not None:
        sweep.join()
        os._exit(1)
