"""Pulling over a line that breaks, from a server that lies."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from data_server import Appends, Corrupts, IgnoresRange, Redirects, Refuses, Stalls, Truncates, WrongRange
from tiny_sets import BERT, CONTENT, FACTS, PROMPTS, TINY, TRAIN, UPSTREAM, manifest_of

from askwell.data.catalogue import Origin
from askwell.data.download import Patience, Progress, address, mirror, pull
from askwell.errors import BadOption, CannotWrite, DamagedFile, Failure

# Silence is long where none is meant, so that a busy machine does not look like a silent server.
QUICK = Patience(attempts=3, silence=60.0, pause=0.01, longest_pause=0.05)
URL = UPSTREAM[TRAIN]
SIZE = len(CONTENT[TRAIN])


def files_in(folder: Path) -> dict[str, bytes]:
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found.pop(".lock", None)
    return found


def test_files_come_to_their_places(server, cache):
    pulled = pull(TINY, patience=QUICK)
    assert files_in(cache) == CONTENT
    assert (pulled.folder, pulled.fetched, pulled.already, pulled.replaced) == (cache, 4, 0, 0)
    assert sorted(path for path, _ in server.requests) == sorted(UPSTREAM.values())


def test_what_is_here_is_not_fetched_again(server, cache):
    pull(TINY, patience=QUICK)
    server.requests.clear()
    assert pull(TINY, patience=QUICK).already == 4
    assert server.requests == []


def test_only_what_was_asked_for_is_fetched(server, cache):
    pull([PROMPTS], patience=QUICK)
    assert set(files_in(cache)) == {path for path in CONTENT if path.startswith("prompts/")}


def test_a_file_that_was_cut_off_goes_on_by_range(server, cache):
    server.plan[URL] = [Truncates(1000), Truncates(500)]
    pull(TINY, patience=QUICK)
    assert files_in(cache) == CONTENT
    assert server.ranges(URL) == [None, "bytes=1000-", "bytes=1500-"]


def test_a_server_that_falls_silent_is_left_and_asked_for_the_rest(server, cache):
    server.plan[URL] = [Stalls(2000)]
    pull(TINY, patience=Patience(attempts=5, silence=2.0, pause=0.01))
    assert files_in(cache) == CONTENT
    assert server.ranges(URL) == [None, "bytes=2000-"]


def test_a_server_that_stays_silent_is_given_up(server, cache):
    server.plan[URL] = [Stalls(0)] * 3
    with pytest.raises(Failure, match=r"P1/train\.jsonl could not be fetched .* 3 attempts.*nothing came for 0\.5 sec"):
        pull([FACTS], patience=Patience(attempts=3, silence=0.5, pause=0.01))
    assert TRAIN not in files_in(cache)


def test_redirects_are_followed_with_the_range(server, cache):
    server.plan[URL] = [Redirects(), Redirects()]
    server.plan[f"/moved{URL}"] = [Truncates(700)]
    pull(TINY, patience=QUICK)
    assert files_in(cache) == CONTENT
    assert server.ranges(f"/moved{URL}") == [None, "bytes=700-"]


def test_a_server_that_redirects_for_ever_is_left(server, cache):
    server.files[f"/moved{URL}"] = b""
    server.plan[URL] = [Redirects()]
    server.plan[f"/moved{URL}"] = [Redirects()] * 50
    with pytest.raises(Failure, match="cannot be had: the server answers 302"):
        pull([FACTS], patience=QUICK)


@pytest.mark.parametrize("answer", [IgnoresRange(), WrongRange()])
def test_a_server_that_does_not_know_ranges_sends_all_again(server, cache, answer):
    server.plan[URL] = [Truncates(1000), answer]
    pull(TINY, patience=QUICK)
    assert files_in(cache) == CONTENT
    # The whole file is taken as such at once; the short answer from a wrong place needs one more request.
    assert server.ranges(URL) == [None, "bytes=1000-"] + ([] if answer == IgnoresRange() else [f"bytes={SIZE - 1000}-"])


@pytest.mark.parametrize("lie", [Corrupts(), Appends()])
def test_a_file_that_was_altered_once_is_fetched_anew(server, cache, lie):
    server.plan[URL] = [lie]
    pull(TINY, patience=QUICK)
    assert files_in(cache) == CONTENT
    assert server.ranges(URL) == [None, None]


@pytest.mark.parametrize("lie", [Corrupts(), Appends()])
def test_nothing_is_accepted_that_was_not_published(server, cache, lie):
    server.plan[URL] = [lie] * 3
    with pytest.raises(DamagedFile, match=r"P1/train\.jsonl .*not what was published") as caught:
        pull([FACTS], patience=QUICK)
    assert server.address + URL in str(caught.value)
    left = files_in(cache)
    assert TRAIN not in left
    assert not any(name.endswith("train.jsonl.partial") for name in left)


def test_a_rest_that_does_not_fit_its_beginning_is_not_accepted(server, cache):
    server.plan[URL] = [Truncates(1000), Corrupts(), Corrupts()]
    with pytest.raises(DamagedFile):
        pull([FACTS], patience=QUICK)
    assert TRAIN not in files_in(cache)


def test_the_next_pull_goes_on_where_one_was_given_up(server, cache):
    server.plan[URL] = [Truncates(4000)]
    with pytest.raises(Failure, match=rf"ended after 4000 of {SIZE} bytes.*run the same command again"):
        pull([FACTS], patience=Patience(attempts=1))
    assert files_in(cache)["facts/tiny/P1/.train.jsonl.partial"] == CONTENT[TRAIN][:4000]
    server.requests.clear()
    pull(TINY, patience=QUICK)
    assert server.ranges(URL) == ["bytes=4000-"]
    assert files_in(cache) == CONTENT


@pytest.mark.parametrize(
    ("beginning", "ranges"),
    [
        (b"rubbish", ["bytes=7-", None]),
        (b"r" * SIZE, [None]),
        (CONTENT[TRAIN] + b"more", [None]),
        (CONTENT[TRAIN], []),
        (b"", [None]),
    ],
    ids=["wrong", "wrong and whole", "too long", "right and whole", "empty"],
)
def test_whatever_beginning_is_found_the_end_is_right(server, cache, beginning, ranges):
    partial = cache / "facts/tiny/P1/.train.jsonl.partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(beginning)
    pull(TINY, patience=QUICK)
    assert files_in(cache) == CONTENT
    assert server.ranges(URL) == ranges


def test_a_file_that_is_not_there_ends_the_pull_at_once(server, cache):
    del server.files[URL]
    with pytest.raises(Failure, match=r"the server answers 404.*askwell data pull --from FOLDER"):
        pull([FACTS], patience=QUICK)
    assert server.ranges(URL) == [None]


def test_a_busy_server_is_asked_again(server, cache):
    server.plan[URL] = [Refuses(503), Refuses(429, retry_after="0")]
    pull(TINY, patience=QUICK)
    assert files_in(cache) == CONTENT


def test_a_server_may_ask_to_wait_but_not_for_ever(server, cache):
    server.plan[URL] = [Refuses(429, retry_after="1")]
    began = time.monotonic()
    pull([FACTS], patience=Patience(attempts=2, pause=0.01, longest_pause=10.0))
    assert time.monotonic() - began >= 1
    server.plan[UPSTREAM[BERT]] = [Refuses(429, retry_after="3600")]
    began = time.monotonic()
    pull([PROMPTS], patience=QUICK)
    assert time.monotonic() - began < 300


def test_no_server_at_all(server, cache, monkeypatch):
    monkeypatch.setenv("ASKWELL_DATA_MIRROR", "http://127.0.0.1:9")
    with pytest.raises(Failure, match="no connection"):
        pull(TINY, patience=QUICK)
    assert files_in(cache) == {}


def test_altered_files_are_replaced(server, cache):
    pull(TINY, patience=QUICK)
    (cache / TRAIN).write_bytes(b"x" * SIZE)
    (cache / BERT).unlink()
    pulled = pull(TINY, patience=QUICK)
    assert (pulled.fetched, pulled.replaced, pulled.already) == (2, 1, 2)
    assert files_in(cache) == CONTENT


def test_two_pulls_at_once_fetch_each_file_once(server, cache):
    server.slow = 0.5
    waited, failures = [], []
    together = threading.Barrier(3, timeout=60)

    def one_pull() -> None:
        try:
            together.wait()
            pull(TINY, lambda state: waited.append(1) if state.waiting else None, QUICK)
        except BaseException as error:
            failures.append(error)

    pulls = [threading.Thread(target=one_pull) for _ in range(3)]
    for thread in pulls:
        thread.start()
    for thread in pulls:
        thread.join(timeout=120)
    assert failures == []
    assert files_in(cache) == CONTENT
    assert len(server.requests) == len(CONTENT)
    assert waited


def test_a_pull_that_was_killed_loses_nothing_of_what_it_had(server, cache, tmp_path):
    server.plan[URL] = [Stalls(5000)]
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(manifest_of(CONTENT)))
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "from askwell.data import catalogue; from askwell.data.download import pull\n"
        "manifest = json.load(open(sys.argv[2])); catalogue._manifest = lambda: manifest\n"
        "from tiny_sets import TINY\n"
        "pull(TINY)\n"
    )
    here = str(Path(__file__).parent)
    process = subprocess.Popen([sys.executable, "-c", program, here, str(manifest)], env=os.environ.copy())
    partial = cache / "facts/tiny/P1/.train.jsonl.partial"
    others = [cache / path for path in CONTENT if path != TRAIN]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        the_beginning_came = partial.exists() and partial.stat().st_size == 5000
        if the_beginning_came and all(path.exists() for path in others):
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=30)
    assert partial.read_bytes() == CONTENT[TRAIN][:5000]
    server.requests.clear()
    pull(TINY, patience=QUICK)
    assert files_in(cache) == CONTENT
    assert server.requests == [(URL, "bytes=5000-")]


def test_progress_ends_at_the_whole_even_when_bytes_were_thrown_away(server, cache):
    server.plan[URL] = [Corrupts(), Truncates(100), IgnoresRange()]
    states: list[Progress] = []
    pull(TINY, states.append, Patience(attempts=5, pause=0.01))
    total = sum(map(len, CONTENT.values()))
    assert states[0] == Progress(0, total, 0)
    assert states[-1] == Progress(total, total, 4)
    assert all(0 <= state.done <= total for state in states)


def test_a_cache_that_cannot_be_written(server, monkeypatch):
    monkeypatch.setenv("ASKWELL_CACHE", "/proc/askwell")
    with pytest.raises(CannotWrite, match=r"/proc/askwell/data cannot be written"):
        pull(TINY, patience=QUICK)


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
