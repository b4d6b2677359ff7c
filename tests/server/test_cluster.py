"""`askwell serve --engine ray` on two local nodes: replicas are killed under load, and nothing is lost.

No test waits for a time: the load goes on until the service has healed, however long that takes.
"""

import contextlib
import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from builders.commands import exit_code
from builders.ray_nodes import RayNodes, ray_nodes
from builders.testbed import load_testbed_lm

import askwell
from askwell.errors import BadFile, Failure, NothingLeft
from askwell.server import cluster
from askwell.server.refusals import NoSuchName, Overloaded

FULL = bool(os.environ.get("ASKWELL_TEST_FULL"))
KILLS = 10 if FULL else 1
CLIENTS = 16 if FULL else 4
SECONDS = 600
REPLICA = b"ServeReplica:askwell:asking"


@dataclass(frozen=True)
class Service:
    address: str
    process: subprocess.Popen
    errors: Path
    nodes: RayNodes


@pytest.fixture(scope="module")
def at(made_runs, tmp_path_factory) -> Generator[Service]:
    """The address of a service with two replicas, each on a node of its own."""
    folder = tmp_path_factory.mktemp("cluster")
    with ray_nodes(folder / "ray.txt") as nodes:
        options = ("--engine", "ray", "--address", nodes.address, "--replicas", "2", "--port", "0")
        command = [sys.executable, "-m", "askwell", "serve", str(made_runs), *options]
        with (folder / "err.txt").open("wb") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            if not address.startswith("http://127.0.0.1:"):
                process.wait(SECONDS)
                pytest.fail(f"{address}\n{(folder / 'err.txt').read_text()}")
            yield Service(address, process, folder / "err.txt", nodes)
        finally:
            process.kill()
            process.wait(SECONDS)
            assert process.stdout is not None
            process.stdout.close()


def replicas(at: Service) -> list[int]:
    """The processes of the cluster's replicas, on all nodes."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if REPLICA in (folder / "cmdline").read_bytes() and at.nodes.mark in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return sorted(found)


def answering(address: str) -> set[str]:
    """The replicas that answer, as they call themselves; each of 40 scrapes is answered by one of them."""
    names = set()
    for _ in range(40):
        with contextlib.suppress(httpx.TransportError):
            response = httpx.get(f"{address}/metrics", timeout=SECONDS)
            names |= {
                line.partition('replica="')[2].partition('"')[0]
                for line in response.text.splitlines()
                if line.startswith("askwell_asked_total")
            }
    return names


class Load:
    """Clients that ask without a pause and try once more where that fails; what comes out of it."""

    def __init__(self, address: str, clients: int) -> None:
        self._address, self._stop = address, threading.Event()
        self._numbers = itertools.count()
        self.answers: dict[str, str] = {}
        self.lost: list[str] = []
        self.repeated = 0
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(SECONDS)

    def wait_for(self, more: int) -> None:
        """Waits until there are this many more answers."""
        enough = len(self.answers) + more
        deadline = time.monotonic() + SECONDS
        while len(self.answers) < enough and not self.lost:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def _ask(self) -> None:
        with httpx.Client(base_url=self._address, timeout=SECONDS) as http:
            while not self._stop.is_set():
                x = f"iron {next(self._numbers)}"
                for attempt in (1, 2):
                    try:
                        response = http.post("/api/v1/ask", json={"mixture": "soft", "xs": [x], "top": 1})
                        response.raise_for_status()
                        self.answers[x] = response.json()["answers"][0][0]["y"]
                        break
                    except httpx.HTTPError as error:
                        if attempt == 2:
                            self.lost.append(f"{x}: {error}")
                        else:
                            self.repeated += 1


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="replicas are found through /proc")
def test_a_killed_replica_loses_no_answer_and_is_replaced(at, made_runs):
    first = answering(at.address)
    assert len(first) == 2
    killed = set()
    with Load(at.address, CLIENTS) as load:
        for _ in range(KILLS):
            load.wait_for(50)
            victim = replicas(at)[0]
            os.kill(victim, signal.SIGKILL)
            killed.add(victim)
            load.wait_for(50)
            deadline = time.monotonic() + SECONDS
            while len(now := answering(at.address)) < 2 or killed & set(replicas(at)):
                assert time.monotonic() < deadline
                assert at.process.poll() is None
    assert load.lost == []
    assert now != first
    mixture = askwell.Mixture.from_pretrained(made_runs / "soft", load_testbed_lm("bert"))
    xs = list(load.answers)[:: max(1, len(load.answers) // 100)]
    assert {x: load.answers[x] for x in xs} == {x: mixture.ask(x, top=1)[0].y for x in xs}
    with askwell.Client(at.address, "soft") as client:
        assert client.ask("iron", top=1)[0].y == mixture.ask("iron", top=1)[0].y


@pytest.mark.slow
def test_every_replica_shows_the_same_jobs(at):
    address = at.address
    body = {"lm": "testbed:bert", "relation": "testbed:symbol", "templates": ["the symbol of [X] is [Y] ."]}
    started = httpx.post(f"{address}/api/v1/jobs", json={**body, "pairs": 900_000}, timeout=SECONDS).json()
    for _ in range(10):  # whichever replica it is
        assert [job["id"] for job in httpx.get(f"{address}/api/v1/jobs", timeout=SECONDS).json()["jobs"]] == [
            started["id"]
        ]
    with httpx.stream("GET", f"{address}/api/v1/jobs/{started['id']}/events", timeout=SECONDS) as response:
        lines = (line for line in response.iter_lines() if line)
        next(lines)
        httpx.delete(f"{address}/api/v1/jobs/{started['id']}", timeout=SECONDS).raise_for_status()
        last = list(lines)[-1]
    assert '"state":"cancelled"' in last
    unknown = httpx.get(f"{address}/api/v1/jobs/nowhere", timeout=SECONDS)
    assert (unknown.status_code, unknown.json()) == (404, {"error": "there is no training job 'nowhere'"})


@pytest.mark.slow
def test_sigterm_finishes_what_was_asked(at):  # the last one: it ends the service
    process = at.process
    body = {"mixture": "soft", "xs": [f"tin {number}" for number in range(500)], "top": 1}
    with httpx.stream("POST", f"{at.address}/api/v1/ask/stream", json=body, timeout=SECONDS) as response:
        lines = response.iter_lines()
        next(lines)
        process.send_signal(signal.SIGTERM)
        assert len(list(lines)) == 499
    assert process.wait(SECONDS) == 0
    assert "Traceback" not in at.errors.read_text()
    assert replicas(at) == []


def test_options_of_a_cluster_need_one(capsys):
    for option in (("--address", "auto"), ("--replicas", "2")):
        assert exit_code("serve", *option) == 2
        assert f"{option[0]} needs --engine ray" in capsys.readouterr().err


def test_errors_are_the_same_in_another_process():
    for error in (Overloaded("full", 7), NoSuchName("no x"), BadFile("a.csv", "broken", 3), NothingLeft("x", {"y": 2})):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)


def test_a_proxy_that_starts_late_is_waited_for_and_one_that_never_does_is_named(monkeypatch):
    """Ray Serve kills a proxy that is not ready within seconds and starts another, as happens on a busy machine."""
    exceptions = pytest.importorskip("ray.exceptions")
    problems = [exceptions.RayActorError(), TimeoutError(), None]
    tries: list[object] = []

    def third_time() -> None:
        tries.append(problem := problems[len(tries)])
        if problem is not None:
            raise problem

    cluster._patiently(third_time)
    assert tries == problems
    listens = iter([(), ("STARTING", "HEALTHY"), ("HEALTHY", "HEALTHY")])
    cluster._patiently(lambda: cluster._need_proxies(next(listens)))
    assert next(listens, None) is None
    monkeypatch.setattr(cluster, "_MINUTES_TO_START", 0.005)

    def never() -> None:
        raise TimeoutError

    with pytest.raises(Failure, match=r"proxy has not started within 0\.005 minutes"):
        cluster._patiently(never)
