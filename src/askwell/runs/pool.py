"""The engine of worker processes on this machine. A worker that dies is replaced, and its run is tried again.

Ctrl-C reaches the whole process group, but only the sweep acts on it: its workers ignore SIGINT from their first
instruction, and the sweep ends them itself.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from askwell.runs.engines import TRIES, Do, Ended, Event, Lost, Started
from askwell.runs.worker import LMKey, RunFailed, RunOutcome, RunTask

# Not forked: a copy of a process with threads (torch's) can hang.
_PROCESSES = multiprocessing.get_context("spawn")


class Pool:
    """Does runs in several processes at once, keeping runs of one LM in the same process as far as possible."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, tasks: Sequence[RunTask], do: Do, tell: Callable[[Event], None]) -> None:
        """Does all runs; a run whose worker dies three times is given up."""
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
        """Gives the worker a run to do."""
        self.lm = task.lm
        with contextlib.suppress(ConnectionError):  # it has just died, as `take` will notice
            self._ours.send(task)

    def take(self) -> RunOutcome | None:
        """The outcome of the run; None if the worker died."""
        with contextlib.suppress(EOFError, ConnectionError):  # how the pipe of a dead worker ends
            if self._ours.poll():  # it may have answered before it died
                return self._ours.recv()
        self._process.join()
        return None

    def stop(self) -> None:
        """Ends the process at once; the run it was working on can be continued."""
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()
        self._ours.close()


def _next_for(worker: _Worker, waiting: "deque[RunTask]", busy: dict[_Worker, RunTask]) -> RunTask:
    """The next run of the worker's LM; otherwise of an LM that no other worker has, or that has the most runs left."""
    left = Counter(task.lm for task in waiting)
    others = {task.lm for task in busy.values()}
    fewest_loads = max(left, key=lambda lm: (lm not in others, left[lm]))
    chosen = worker.lm if worker.lm in left else fewest_loads
    task = next(task for task in waiting if task.lm == chosen)
    waiting.remove(task)
    return task


@contextlib.contextmanager
def _interrupts_held_back() -> Generator[None]:
    """Holds interrupts back until the block ends; a process started in it begins with SIGINT blocked.

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
        if blocked is not None:  # first, while an interrupt is only noted
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for number in came:
        signal.raise_signal(number)


def _serve(tasks: Connection, do: Do) -> None:
    """The life of a worker."""
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
