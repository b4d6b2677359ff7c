"""Pulling over a connection that breaks, from a server that lies."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builders.killed import FULL, count_steps, kill_at, spread
from data_server import Appends, Corrupts, DataServer, Redirects, Refuses, Stalls, Truncates
from tiny_sets import BERT, CONTENT, FACTS, PROMPTS, TEST, TINY, TRAIN, UPSTREAM, manifest_of

from askwell.data import published
from askwell.data.published import Origin, address, mirror, pull_sets
from askwell.errors import BadOption, CannotWrite, DamagedFile, Failure

URL = UPSTREAM[TRAIN]
SIZE = len(CONTENT[TRAIN])


def files_in(folder: Path) -> dict[str, bytes]:
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found.pop(".lock", None)
    return found


def program(tmp_path: Path, *, timeout: float = 30.0, before: str = "") -> list[str]:
    """A command that pulls the tiny sets in a process of its own."""
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(manifest_of(CONTENT)))
    lines = f"""
import json, sys; sys.path.insert(0, sys.argv[1]); {before}
from askwell.data import published as catalogue; from askwell.data.published import pull_sets
manifest = json.load(open(sys.argv[2])); catalogue._manifest = lambda: manifest
from tiny_sets import TINY
pull_sets(TINY, attempts=1000, timeout={timeout})
"""
    return [sys.executable, "-c", lines, str(Path(__file__).parent), str(manifest)]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """A pull waits for some seconds before it tries again; here it only lets other threads run."""
    monkeypatch.setattr(published, "_PAUSE", 0.001)


def test_files_come_to_their_places(server, cache):
    pulled = pull_sets(TINY)
    assert files_in(cache) == CONTENT
    assert (pulled.folder, pulled.fetched, pulled.already_here, pulled.replaced) == (cache, 4, 0, 0)
    assert sorted(path for path, _ in server.requests) == sorted(UPSTREAM.values())


def test_what_is_here_is_not_fetched_again(server, cache):
    pull_sets(TINY)
    server.requests.clear()
    assert pull_sets(TINY).already_here == 4
    assert server.requests == []


def test_only_what_was_asked_for_is_fetched(server, cache):
    pull_sets([PROMPTS])
    assert set(files_in(cache)) == {path for path in CONTENT if path.startswith("prompts/")}


def test_a_file_that_was_cut_off_is_fetched_again(server, cache):
    server.plan[URL] = [Truncates(1000), Truncates(500)]
    pull_sets(TINY)
    assert files_in(cache) == CONTENT
    assert len(server.ranges(URL)) == 3


def test_a_server_that_falls_silent_is_asked_again(server, cache):
    server.plan[URL] = [Stalls(2000)]
    pull_sets(TINY, attempts=50, timeout=1.0)  # on a busy machine, further answers may take a second
    assert files_in(cache) == CONTENT
    assert len(server.ranges(URL)) >= 2


def test_a_server_that_stays_silent_is_given_up(server, cache):
    for path in (TRAIN, TEST):
        server.plan[UPSTREAM[path]] = [Stalls(0), Stalls(10), Stalls(0)]
    with pytest.raises(Failure, match=r"\.jsonl could not be fetched .* 3 attempts.*no data for 0\.5 sec"):
        pull_sets([FACTS], attempts=3, timeout=0.5)
    assert files_in(cache) == {}


def test_redirects_are_followed(server, cache):
    server.plan[URL] = [Redirects()]
    pull_sets(TINY)
    assert files_in(cache) == CONTENT
    assert server.ranges(f"/moved{URL}") == [None]


def test_a_server_that_redirects_for_ever_is_left(server, cache):
    server.files[f"/moved{URL}"] = b""
    server.plan[URL] = [Redirects()] * 2
    server.plan[f"/moved{URL}"] = [Redirects()] * 50
    with pytest.raises(Failure, match=r"the transfer failed .*redirects"):
        pull_sets([FACTS], attempts=2)


@pytest.mark.parametrize("lie", [Corrupts(), Appends()])
def test_a_file_that_was_altered_once_is_fetched_anew(server, cache, lie):
    server.plan[URL] = [lie]
    pull_sets(TINY)
    assert files_in(cache) == CONTENT
    assert server.ranges(URL) == [None, None]


@pytest.mark.parametrize("lie", [Corrupts(), Appends()])
def test_nothing_is_accepted_that_was_not_published(server, cache, lie):
    server.plan[URL] = [lie] * 3
    with pytest.raises(DamagedFile, match=r"P1/train\.jsonl .* 3 attempts; .*differs from the published one") as caught:
        pull_sets([FACTS], attempts=3)
    assert server.address + URL in str(caught.value)
    assert TRAIN not in files_in(cache)


def test_the_next_pull_fetches_what_is_lacking(server, cache):
    server.plan[URL] = [Truncates(4000)]
    with pytest.raises(Failure, match=r"the transfer failed .*the same command continues"):
        pull_sets(TINY, attempts=1)
    lacking = {UPSTREAM[path] for path in CONTENT if path not in files_in(cache)}
    assert URL in lacking
    server.requests.clear()
    pull_sets(TINY)
    assert {path for path, _ in server.requests} == lacking
    assert files_in(cache) == CONTENT


def test_a_file_that_is_not_there_ends_the_pull_at_once(server, cache):
    del server.files[URL]
    with pytest.raises(Failure, match=r"the server answers 404.*askwell data pull --from FOLDER"):
        pull_sets([FACTS])
    assert server.ranges(URL) == [None]


def test_a_busy_server_is_asked_again(server, cache):
    server.plan[URL] = [Refuses(503), Refuses(429)]
    pull_sets(TINY)
    assert files_in(cache) == CONTENT


def test_a_server_that_stays_busy_is_given_up(server, cache):
    server.plan[URL] = [Refuses(503)] * 2
    with pytest.raises(Failure, match="in 2 attempts; the last: the server answers 503 Service Unavailable"):
        pull_sets([FACTS], attempts=2)


def test_no_server_at_all(server, cache, monkeypatch):
    monkeypatch.setenv("ASKWELL_DATA_MIRROR", "http://127.0.0.1:9")
    with pytest.raises(Failure, match=r"no connection \(\[Errno \d+\] Connection refused\)"):
        pull_sets(TINY, attempts=2)
    assert files_in(cache) == {}


def test_altered_files_are_replaced(server, cache):
    pull_sets(TINY)
    (cache / TRAIN).write_bytes(b"x" * SIZE)
    (cache / BERT).unlink()
    pulled = pull_sets(TINY)
    assert (pulled.fetched, pulled.replaced, pulled.already_here) == (2, 1, 2)
    assert files_in(cache) == CONTENT


def test_two_pulls_at_once_fetch_each_file_once(server, cache):
    server.open.clear()
    waited, failures = [], []

    def tell(text: str) -> None:
        waited.append(text)
        if len(waited) == 2:  # the third is at work
            server.open.set()

    def one_pull() -> None:
        try:
            pull_sets(TINY, note=tell)
        except BaseException as error:
            failures.append(error)

    pulls = [threading.Thread(target=one_pull) for _ in range(3)]
    for thread in pulls:
        thread.start()
    for thread in pulls:
        thread.join(timeout=600)
    assert failures == []
    assert files_in(cache) == CONTENT
    assert len(server.requests) == len(CONTENT)


def stop_in_the_middle(program: list[str], with_signal: int, server: DataServer, cache: Path) -> None:
    """Sends the signal when all files but one are there, in the middle of which the server falls silent."""
    server.plan[URL] = [Stalls(5000)] * 1000
    with subprocess.Popen(program, env=os.environ.copy(), stderr=subprocess.DEVNULL) as process:
        others = [cache / path for path in CONTENT if path != TRAIN]
        deadline = time.monotonic() + 600
        while not (server.ranges(URL) and all(path.exists() for path in others)):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(with_signal)
        try:
            assert process.wait(timeout=600) == -with_signal
        finally:
            process.kill()
    server.plan.clear()


def test_a_pull_that_was_killed_loses_nothing_of_what_it_had(server, cache, tmp_path):
    stop_in_the_middle(program(tmp_path), signal.SIGKILL, server, cache)
    assert not (cache / TRAIN).exists()
    server.requests.clear()
    pull_sets(TINY)
    assert files_in(cache) == CONTENT
    assert server.requests == [(URL, None)]


def test_ctrl_c_ends_a_pull_and_leaves_nothing_that_is_not_whole(server, cache, tmp_path):
    stop_in_the_middle(program(tmp_path, timeout=1.0), signal.SIGINT, server, cache)
    assert files_in(cache) == {path: data for path, data in CONTENT.items() if path != TRAIN}


def test_ctrl_c_before_all_files_are_begun_retries_none(server, cache, monkeypatch):
    submit = ThreadPoolExecutor.submit

    def interrupted(pool, function, *arguments):
        submit(pool, function, *arguments)
        if TRAIN in [getattr(argument, "path", None) for argument in arguments]:
            while not server.ranges(URL):
                time.sleep(0.01)
            raise KeyboardInterrupt

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
    server.plan[URL] = [Stalls(5000)] * 3
    with pytest.raises(KeyboardInterrupt):
        pull_sets(TINY, attempts=3, timeout=0.2)
    assert len(server.ranges(URL)) == 1
    assert TRAIN not in files_in(cache)


def test_a_full_disk(server, cache, tmp_path):
    command = program(tmp_path, before="import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))")
    ended = subprocess.run(command, env=os.environ.copy(), capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(
        f"askwell.errors.CannotWrite: {cache / TRAIN} cannot be written: File too large"
    )
    assert TRAIN not in files_in(cache)


def test_progress_begins_with_what_is_here_and_ends_at_the_whole(server, cache):
    server.plan[URL] = [Corrupts()]
    pull_sets([PROMPTS])
    states: list[tuple[int, int, int]] = []
    pull_sets(TINY, lambda *state: states.append(state))
    total, here = (sum(len(CONTENT[path]) for path in CONTENT if begin in path) for begin in ("", "prompts/"))
    assert states[0] == (here, total, 2)
    assert states[-1] == (total, total, 4)
    assert [done for done, _, _ in states] == sorted(done for done, _, _ in states)


def test_pulled_files_can_be_read_by_others(server, cache):
    pull_sets([PROMPTS])
    assert (cache / BERT).stat().st_mode & 0o777 == 0o644


def test_a_cache_that_cannot_be_written(server, monkeypatch):
    monkeypatch.setenv("ASKWELL_CACHE", "/proc/askwell")
    with pytest.raises(CannotWrite, match=r"/proc/askwell/data cannot be written"):
        pull_sets(TINY)


def test_addresses_are_those_of_github_unless_a_mirror_is_set(monkeypatch):
    origin = Origin("owner/name", "0" * 40, "a folder/ä.jsonl")
    assert mirror() == "https://raw.githubusercontent.com"
    assert address(mirror(), origin) == (
        "https://raw.githubusercontent.com/owner/name/" + "0" * 40 + "/a%20folder/%C3%A4.jsonl"
    )
    monkeypatch.setenv("ASKWELL_DATA_MIRROR", "http://localhost:8000/copy/")
    assert address(mirror(), origin).startswith("http://localhost:8000/copy/owner/name/000")


@pytest.mark.parametrize("value", ["localhost:8000", "file:///etc", "ftp://host/x", "https://"])
def test_a_mirror_must_be_an_http_address(monkeypatch, value):
    monkeypatch.setenv("ASKWELL_DATA_MIRROR", value)
    with pytest.raises(BadOption, match="ASKWELL_DATA_MIRROR"):
        mirror()


def test_a_pull_killed_at_any_step_leaves_whole_files(server, cache):
    pull_sets(TINY)
    shutil.rmtree(cache)
    steps = count_steps(cache, lambda: pull_sets(TINY))
    for step in spread(steps, 20 if FULL else 1):
        shutil.rmtree(cache, ignore_errors=True)
        kill_at(step, cache, lambda: pull_sets(TINY))  # files come side by side: the last steps are not always there
        found = files_in(cache) if cache.exists() else {}
        assert {path: data for path, data in found.items() if path in CONTENT}.items() <= CONTENT.items()
        pull_sets(TINY)
        assert files_in(cache) == CONTENT
