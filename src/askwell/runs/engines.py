"""Engines, which do the runs of a sweep: their interface, the engine in this process, and the one on a Ray cluster.

The pool of processes is in `pool`. All of them produce the same store.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol, runtime_checkable

from askwell.errors import BadOption, Failure
from askwell.runs.worker import RunFailed, RunOutcome, RunTask

TRIES = 3
"""How often a run is tried in total if its worker dies."""

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
    """The worker of a run died; the run is tried again."""

    task: RunTask
    reason: str


@dataclass(frozen=True)
class PutOff:
    """Another sweep is doing the run; it is looked at again when the others are done."""

    task: RunTask


Event = Started | Ended | Lost | PutOff


@runtime_checkable
class Engine(Protocol):
    """Does runs, here or elsewhere."""

    @property
    def workers(self) -> int:
        """How many runs it does at once."""
        ...

    def run(self, tasks: Sequence[RunTask], do: Do, tell: Callable[[Event], None]) -> None:
        """Does all runs with `do`, and calls `tell` when each begins and ends. If interrupted, it stops all work."""
        ...


class InProcess:
    """Does runs in this process."""

    workers = 1

    def run(self, tasks: Sequence[RunTask], do: Do, tell: Callable[[Event], None]) -> None:
        """Does all runs in order."""
        for task in tasks:
            tell(Started(task))
            tell(Ended(task, do(task)))


_SECONDS_BETWEEN_LOOKS = 5.0


def is_installed() -> bool:
    """Whether Ray can be imported."""
    return find_spec("ray") is not None


class RayCluster:
    """Does runs on the machines of a cluster; each run reserves some CPUs and GPUs."""

    def __init__(self, address: str | None, cpus_per_run: float, gpus_per_run: float) -> None:
        if not is_installed():
            raise BadOption("engine ray: Ray is not installed here; get it with: pip install 'askwell[cluster]'")
        self._address, self._cpus, self._gpus = address, cpus_per_run, gpus_per_run
        self._ray = connect_to_ray(address)

    @property
    def workers(self) -> int:
        """How many runs the cluster can do at once, at its present size."""
        there = self._ray.cluster_resources()
        by_cpus = int(there.get("CPU", 0) / self._cpus)
        return max(1, min(by_cpus, int(there.get("GPU", 0) / self._gpus)) if self._gpus else by_cpus)

    def run(self, tasks: Sequence[RunTask], do: Do, tell: Callable[[Event], None]) -> None:
        """Does all runs in order, as many at once as there is room for."""
        if not self._ray.is_initialized():  # after runs that were done before
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
    """Ray, connected to the cluster at an address, or to a new one on this machine."""
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
