"""The same service on a Ray cluster: replicas of the app behind Ray Serve's proxy, and one process that trains.

A replica that dies is replaced by Ray Serve. Its pending requests are lost, and the proxy answers them with 500; a
client that retries is answered by another replica (`askwell.Client` does). Training jobs run in a separate deployment,
so that every replica shows the same jobs, and none of them ends with a replica.
"""

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from fastapi import FastAPI

from askwell.errors import AskwellError, BadOption, DamagedFile, Failure
from askwell.runs.engines import connect_to_ray, is_installed
from askwell.server.app import make_app
from askwell.server.schemas import TrainRequest
from askwell.server.service import Job, Jobs, Service
from askwell.server.settings import Settings, address_of, listen

APP = "askwell"
_TRAINING = "training"
_SECONDS_TO_END = 30
_SECONDS_BETWEEN_CHECKS = 2
_MINUTES_TO_START = 10
_HEAD = "node:__internal_head__"


class Training:
    """Executes the training jobs of all replicas."""

    def __init__(self, settings: Settings) -> None:
        self._jobs = Jobs(_on_this_machine(settings).runs, settings.waiting_jobs)

    def do(self, what: str, *arguments: object) -> Any:
        """Call a method of `Jobs`; an error that is meant for the client is returned rather than raised."""
        try:
            return getattr(self._jobs, what)(*arguments)
        except AskwellError as error:
            return error

    def __del__(self) -> None:
        self._jobs.close()


class JobsElsewhere(Jobs):
    """The jobs of `Training`, as a replica sees them: each is a copy of the job's current state."""

    def __init__(self) -> None:
        """Have no thread and no jobs of its own."""

    def start(self, order: TrainRequest, prompts: str) -> Job:
        """Start a job."""
        return self._call("start", order, prompts)

    def all(self) -> list[Job]:
        """Return all jobs, the newest first."""
        return self._call("all")

    def find(self, identity: str) -> Job:
        """Return the job with this id."""
        return self._call("find", identity)

    def cancel(self, identity: str) -> Job:
        """Cancel a job."""
        return self._call("cancel", identity)

    def close(self) -> None:
        """Do nothing: jobs do not end with a replica."""

    def _call(self, what: str, *arguments: object) -> Any:
        from ray import serve

        found = serve.get_deployment_handle(_TRAINING, APP).do.remote(what, *arguments).result()
        if isinstance(found, AskwellError):
            raise found
        return found


def serve_on_ray(
    settings: Settings, host: str, port: int, *, replicas: int, address: str | None, tell: Callable[[str], None]
) -> None:
    """Serve on a Ray cluster until a signal is received; `tell` gets the address once every replica answers."""
    if not is_installed():
        raise BadOption("--engine ray: Ray is not installed here; get it with: pip install 'askwell[cluster]'")
    os.environ.setdefault("RAY_SERVE_LOG_TO_STDERR", "0")  # its logs are in Ray's folder
    settings = replace(settings, runs=None if settings.runs is None else settings.runs.resolve())
    ray = connect_to_ray(address)
    from ray import serve

    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    there = _free_address(ray, host, port)
    if serve.status().proxies:
        raise Failure("--engine ray: Ray Serve is already running on this cluster; stop it with: serve shutdown")
    cpus = settings.threads or 1
    available = int(ray.cluster_resources().get("CPU", 0))
    if replicas * cpus > available:
        raise BadOption(
            f"--replicas {replicas}: with {cpus} CPU{'s' if cpus > 1 else ''} for each (--threads), that is more than "
            f"the {available} of the cluster"
        )
    told = threading.Event()
    try:
        http = {"host": host, "port": int(there.rpartition(":")[2]), "keep_alive_timeout_s": 75}
        app = _application(serve, replace(settings, threads=cpus), replicas, cpus)
        _patiently(lambda: serve.start(proxy_location="HeadOnly", http_options=http))
        _patiently(lambda: serve.run(app, name=APP))
        _patiently(lambda: _need_proxies(serve.status().proxies.values()))
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, lambda *_: told.set())
        tell(there)
        told.wait()
        serve.delete(APP)  # finishes pending requests
    except RuntimeError as error:  # a replica could not start
        raise Failure(f"--engine ray: {_reason(str(error))}") from error
    finally:
        serve.shutdown()
        ray.shutdown()


def _patiently(start: Callable[[], object]) -> None:
    """Start something in Ray Serve, with retries: Ray replaces a proxy that takes more than a few seconds to start, and
    gives all of them a minute, which is too little when all cores are busy."""
    from ray.exceptions import RayActorError

    until = time.monotonic() + 60 * _MINUTES_TO_START
    while time.monotonic() < until:
        with contextlib.suppress(TimeoutError, RayActorError):
            start()
            return
        time.sleep(0.2)
    raise Failure(f"--engine ray: the cluster's proxy has not started within {_MINUTES_TO_START} minutes")


def _need_proxies(proxies: Collection[str]) -> None:
    """Raise TimeoutError unless there are proxies and all of them are listening."""
    if not proxies or any(status != "HEALTHY" for status in proxies):
        raise TimeoutError


def _application(serve: Any, settings: Settings, replicas: int, cpus: int) -> Any:
    def app() -> FastAPI:
        here = _on_this_machine(settings)
        replica = serve.get_replica_context().replica_id.unique_id
        return make_app(Service(here, JobsElsewhere() if here.training else None), replica)

    asking = serve.deployment(
        serve.ingress(app)(),
        name="asking",
        num_replicas=replicas,
        ray_actor_options={"num_cpus": cpus},
        max_ongoing_requests=settings.places + 64,  # the app's own queue says when it is full
        health_check_period_s=_SECONDS_BETWEEN_CHECKS,
        graceful_shutdown_timeout_s=_SECONDS_TO_END,
    )
    if not settings.training:
        return asking.bind()
    training = serve.deployment(
        Training,
        name=_TRAINING,
        num_replicas=1,
        ray_actor_options={"num_cpus": 0},  # so that the replicas can use the whole cluster
        health_check_period_s=_SECONDS_BETWEEN_CHECKS,
        graceful_shutdown_timeout_s=_SECONDS_TO_END,
    )
    return asking.bind(training.bind(settings))


def _on_this_machine(settings: Settings) -> Settings:
    if settings.runs is not None and not settings.runs.is_dir():
        raise DamagedFile(f"{settings.runs}: this folder of runs is not on every machine of the cluster")
    return settings


def _free_address(ray: Any, host: str, port: int) -> str:
    """Return the address where the proxy will listen: the head of the cluster, which has to be this machine."""
    head = next((node["NodeManagerAddress"] for node in ray.nodes() if _HEAD in node["Resources"]), None)
    if head is not None and head != ray.util.get_node_ip_address():
        raise BadOption(f"--engine ray: start this on the head of the cluster, {head}, which clients connect to")
    with listen(host, port) as listening:
        return address_of(listening)


def _reason(message: str) -> str:
    """Return the last sentence of Ray Serve's message about a replica that could not start."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    ours = [line for line in lines if "askwell.errors." in line]
    return (ours or lines or ["it could not start"])[-1].rpartition("askwell.errors.")[2]
