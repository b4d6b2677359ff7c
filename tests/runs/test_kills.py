"""Sweeps as a shell starts them, killed after some of their runs: they end with the store of an undisturbed one.

No test waits for a time. A worker that is held (SIGSTOP) keeps its run, so that a sweep cannot end before it is killed.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.commands import exit_code
from builders.ray_nodes import RayNodes, ray_nodes
from builders.sweeps import World, contents

from askwell.runs.engines import TRIES, InProcess, run_plan
from askwell.runs.plan import plan_sweep
from askwell.runs.query import query_runs
from askwell.runs.store import new_or_open_store, open_store
from askwell.specs.run_spec import read_sweep

FULL = bool(os.environ.get("ASKWELL_TEST_FULL"))
KILLS = 20
RAY_KILLS = 20 if FULL else 1
SECONDS = 600  # for one sweep, on a busy machine
SETTINGS = {
    "init": {"tuned": False},
    "soft": {"epochs": 15, "controls": ["random-weights"]},
    "deep": {"deep": True, "epochs": 15, "controls": []},
}
RELATIONS = 2 if FULL else 1
RUNS = 2 * RELATIONS * 4  # LMs, relations, and settings with the control of one
many_kills = pytest.mark.skipif(not FULL, reason="twenty kills; one of each is above; set ASKWELL_TEST_FULL=1")
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="workers are found through /proc")


def write(world: World, folder: Path) -> Path:
    facts = sorted(f"places/{path.name}" for path in (world.data / "facts" / "places").iterdir())[:RELATIONS]
    return world.write_sweep(folder, facts=facts, settings=SETTINGS, prompts={"many": ["many"]}, engine=None)


@pytest.fixture(scope="module")
def undisturbed(world, tmp_path_factory):
    """What the store of an undisturbed sweep in this process holds."""
    path = write(world, tmp_path_factory.mktemp("undisturbed"))
    store = new_or_open_store(path.parent / "store")
    plan = plan_sweep(read_sweep(path), path, store)
    assert run_plan(plan, InProcess(), store, lambda _event: None) == []
    assert len(store.done()) == RUNS
    return contents(store.folder)


@contextlib.contextmanager
def start(path: Path, *options: object) -> Generator[subprocess.Popen]:
    """A sweep; whatever a test finds wrong, nothing of it is left, not even a worker that is held."""
    command = [sys.executable, "-m", "askwell", "sweep", str(path), *map(str, options)]
    with (path.parent / "err.txt").open("ab") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)
    try:
        yield process
    finally:
        kill_all(process)


def finish(path: Path) -> None:
    """The same sweep continues to its end, in this process."""
    assert exit_code("sweep", path, "--engine", "in-process") == 0


def done(store: Path) -> int:
    return len(list((store / "runs").iterdir())) if (store / "runs").is_dir() else 0


def wait_until(process: subprocess.Popen, condition: Callable[[], Any]) -> Any:
    """Waits while the sweep is under way until something is there, and gives it."""
    deadline = time.monotonic() + SECONDS
    while not (found := condition()):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def wait_for_runs(process: subprocess.Popen, store: Path, more: int) -> bool:
    """Waits until this many more runs are done and another is under way; whether the sweep has not ended before."""
    enough = min(RUNS, done(store) + more)
    deadline = time.monotonic() + SECONDS
    while (done(store) < enough or not (store / "unfinished").is_dir()) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process.poll() is None


def hold_one(process: subprocess.Popen, chance: random.Random) -> tuple[int, int]:
    """Holds one of the two workers of a sweep that has several runs left; gives that one and the other."""
    workers = wait_until(process, lambda: found if len(found := workers_of(process)) == 2 else None)
    held, other = chance.sample(workers, 2)
    os.kill(held, signal.SIGSTOP)
    return held, other


def kill_all(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=SECONDS)


def workers_of(process: subprocess.Popen) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == process.pid and b"spawn_main" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return sorted(found)


def all_whole(store: Path) -> None:
    """Whatever was killed, each run that is seen can be read."""
    if (store / "store.json").exists():
        kept = open_store(store)
        before = len(kept.done())
        assert before <= len(query_runs(kept.runs())) <= len(kept.done())  # the sweep may go on meanwhile


@pytest.mark.slow
@needs_proc
def test_a_sweep_goes_on_without_a_killed_worker_and_leaves_none_when_it_is_killed(world, undisturbed, tmp_path):
    chance, path, store = random.Random(3), write(world, tmp_path), tmp_path / "store"
    with start(path, "--workers", 2) as process:
        held, other = hold_one(process, chance)
        wait_until(process, lambda: done(store))
        os.kill(other, signal.SIGKILL)
        # It cannot end before the run that is held; it may, rarely, have had all others done when the kill came.
        wait_until(process, lambda: set(workers_of(process)) - {held, other} or done(store) == RUNS - 1)
        before, others = done(store), set(workers_of(process)) - {held, other}
        wait_until(process, lambda: done(store) > before or done(store) == RUNS - 1)
        process.kill()  # it alone
        for another in others:
            wait_for_end(process, another)
        os.kill(held, signal.SIGKILL)
        wait_for_end(process, held)
    all_whole(store)
    finish(path)
    assert contents(store) == undisturbed


@many_kills
@needs_proc
def test_a_killed_sweep_leaves_no_worker_and_goes_on(world, undisturbed, tmp_path):
    chance, path, store = random.Random(1), write(world, tmp_path), tmp_path / "store"
    for kill in range(KILLS):
        with start(path, "--workers", 2) as process:
            if kill == 0:
                held, other = hold_one(process, chance)
                wait_until(process, lambda: done(store))
                process.kill()  # it alone
                wait_for_end(process, other)
                os.kill(held, signal.SIGKILL)
                wait_for_end(process, held)
            else:
                wait_for_runs(process, store, chance.randrange(4))
                kill_all(process)
        all_whole(store)
        if done(store) == RUNS:
            finish(path)  # it was killed after its last run, before it had removed what is left of it
            assert contents(store) == undisturbed
            store.rename(tmp_path / f"whole-{kill}")
    finish(path)
    assert contents(store) == undisturbed


@many_kills
@needs_proc
def test_a_sweep_whose_workers_are_killed_goes_on_by_itself(world, undisturbed, tmp_path):
    chance, path, store = random.Random(2), write(world, tmp_path), tmp_path / "store"
    kills = 0
    with start(path, "--workers", 2) as process:
        while kills < KILLS and done(store) < RUNS - 4:
            held, other = hold_one(process, chance)
            enough = done(store) + (chance.randrange(3) if kills else 1)
            wait_until(process, lambda enough=enough: done(store) >= enough)
            os.kill(other, signal.SIGKILL)
            # Else a dying worker could be held next; the sweep cannot end before the one that is held now.
            wait_until(process, lambda other=other: not is_running(other))
            os.kill(held, signal.SIGCONT)
            kills += 1
            all_whole(store)
        process.wait(timeout=SECONDS)
    assert kills
    if kills < TRIES:
        assert process.returncode == 0, (tmp_path / "err.txt").read_text()
    finish(path)  # a run that kills have hit three times is given up, and done the next time
    assert contents(store) == undisturbed


def wait_for_end(sweep: subprocess.Popen, worker: int) -> None:
    """Waits until the sweep has ended, and then its worker."""
    sweep.wait(timeout=SECONDS)
    deadline = time.monotonic() + SECONDS
    while is_running(worker):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.slow
@needs_proc
def test_ctrl_c_stops_cleanly_and_the_same_command_goes_on(world, undisturbed, tmp_path):
    path, store = write(world, tmp_path), tmp_path / "store"
    with start(path, "--workers", 2) as process:
        first = wait_until(process, lambda: workers_of(process))[0]
        os.kill(first, signal.SIGSTOP)  # a worker that stands still has a run, so the sweep cannot end by itself
        wait_until(process, lambda: done(store))
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=SECONDS) == 130
    told = (tmp_path / "err.txt").read_text()
    assert "the same command continues" in told
    assert "Traceback" not in told
    assert not is_running(first)
    assert 0 < done(store) < RUNS
    finish(path)
    assert contents(store) == undisturbed


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[RayNodes]:
    with ray_nodes(tmp_path_factory.mktemp("ray") / "err.txt") as nodes:
        yield nodes


@pytest.mark.slow
def test_a_ray_cluster_leaves_the_same_store_though_sweeps_and_nodes_are_killed(world, undisturbed, cluster, tmp_path):
    chance, path, store = random.Random(4), write(world, tmp_path), tmp_path / "store"
    on_ray = ("--engine", "ray", "--address", cluster.address)
    for kill in range(RAY_KILLS):
        with start(path, *on_ray) as process:
            under_way = wait_for_runs(process, store, chance.randrange(4))
            if kill % 2 or not under_way:
                kill_all(process)
            else:
                cluster.replace_one()
                assert process.wait(timeout=SECONDS) == 0, (tmp_path / "err.txt").read_text()
        all_whole(store)
        if done(store) == RUNS:
            finish(path)  # it was killed after its last run, before it had removed what is left of it
            assert contents(store) == undisturbed
            store.rename(tmp_path / f"whole-{kill}")
    if store.exists():
        finish(path)
        assert contents(store) == undisturbed
