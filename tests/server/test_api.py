"""The API, over a real socket."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import httpx
import pytest
from builders.servers import Served, served
from builders.testbed import load_testbed_lm

import askwell
from askwell.errors import Failure, UsageError
from askwell.runs.folder import load_runs
from askwell.runs.query import query_runs
from askwell.server.settings import Settings


@pytest.fixture(scope="module")
def at(made_runs):
    with served(Settings(runs=made_runs, places=50, batch=16)) as running:
        yield running


@pytest.fixture
def http(at):
    with httpx.Client(base_url=at.address, timeout=600) as client:
        yield client


def test_ask_gives_the_mixtures_own_answers(http, made_runs):
    xs = ["iron", "gold"]
    response = http.post("/api/v1/ask", json={"mixture": "soft", "xs": xs})
    assert response.status_code == 200
    document = response.json()
    assert set(document) == {"answers"}
    mixture = askwell.Mixture.from_pretrained(made_runs / "soft", load_testbed_lm("bert"))
    for x, found in zip(xs, document["answers"], strict=True):
        alone = mixture.ask(x)
        assert [set(answer) for answer in found] == [{"y", "probability"}] * 10
        assert [answer["y"] for answer in found] == [reply.y for reply in alone]
        assert [answer["probability"] for answer in found] == pytest.approx(
            [one.probability for one in alone], rel=1e-3
        )
    one = http.get("/api/v1/ask", params={"mixture": "soft", "x": "iron", "top": 2}).json()["answers"]
    assert [[answer["y"] for answer in found] for found in one] == [
        [answer["y"] for answer in document["answers"][0][:2]]
    ]


def test_streamed_answers_come_line_by_line_and_are_the_same(http):
    xs = [f"iron {number}" for number in range(40)]
    body = {"mixture": "soft", "xs": xs, "top": 1}
    whole = http.post("/api/v1/ask", json=body).json()["answers"]
    with http.stream("POST", "/api/v1/ask/stream", json=body) as response:
        assert response.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in response.iter_lines()]
    assert [line["x"] for line in lines] == xs
    assert [line["answers"] for line in lines] == whole


def test_the_api_lists_mixtures_lms_and_runs(http, made_runs):
    names = {mixture["name"] for mixture in http.get("/api/v1/mixtures").json()["mixtures"]}
    assert names == {"soft", "soft:hard", "deep", "deep:hard", "hard"}
    lms = {lm["name"]: lm for lm in http.get("/api/v1/lms").json()["lms"]}
    assert {"testbed:bert", "testbed:roberta", "testbed:bart", "testbed:causal"} <= set(lms)
    rows = {row["name"]: row for row in http.get("/api/v1/runs").json()["runs"]}
    expected = {run["id"]: run for run in query_runs(load_runs(made_runs)).records()}
    assert set(rows) == {"soft", "deep", "hard"}
    for row in rows.values():
        assert row == {**expected[row["id"]], "name": row["name"]}  # by which it is served
    record = http.get("/api/v1/runs/soft").json()
    assert record["id"] == rows["soft"]["id"]
    assert record["history"]


def test_machines_can_look(http):
    assert http.get("/healthz").json() == {"status": "ok", "version": askwell.__version__}
    before = _figures(http.get("/metrics").text)
    http.post("/api/v1/ask", json={"mixture": "deep", "xs": ["tin", "zinc"]}).raise_for_status()
    http.post("/api/v1/ask", json={"mixture": "deep", "xs": ["tin"]}).raise_for_status()
    http.get("/nowhere")
    after = _figures(http.get("/metrics").text)
    assert after["askwell_asked_total"] - before["askwell_asked_total"] == 2
    assert after["askwell_from_cache_total"] - before["askwell_from_cache_total"] == 1
    assert after["askwell_queue_places"] == 50
    assert after["askwell_loaded_lms"] >= 1
    assert after['askwell_requests_total{route="/api/v1/ask",status="200"}'] >= 2
    assert after['askwell_requests_total{route="other",status="404"}'] >= 1


def _figures(text: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_the_client_asks_as_a_mixture_does(at, made_runs):
    mixture = askwell.Mixture.from_pretrained(made_runs / "soft", load_testbed_lm("bert"))
    with askwell.Client(at.address, "soft") as client:
        found, alone = client.ask("copper", top=3), mixture.ask("copper", top=3)
        assert [reply.y for reply in found] == [reply.y for reply in alone]
        for one, other in zip(found, alone, strict=True):
            assert one.probability == pytest.approx(other.probability, rel=1e-3)
            assert one.by_prompt == pytest.approx(other.by_prompt, rel=1e-3)
        assert next(client.ask_many(["copper", "tin"], top=3))[0] == found[0]
        assert "deep" in client.mixtures
        with pytest.raises(UsageError, match="there is no mixture 'nowhere'"):
            client.ask("copper", mixture="nowhere")
    with askwell.Client(at.address) as client, pytest.raises(UsageError, match="name the mixture to ask"):
        client.ask("copper")
    with askwell.Client("http://127.0.0.1:1") as client, pytest.raises(Failure, match="no service can be reached"):
        client.ask("copper", mixture="soft")


class _LosesTheFirst(BaseHTTPRequestHandler):
    """Stands before a service: the first request is lost with a replica, the second is answered."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.asked.append(self.path)
        self.rfile.read(int(self.headers["content-length"]))
        lost = len(self.asked) == 1
        content = (
            b"Internal Server Error"
            if lost
            else b'{"answers": [[{"y": "Fe", "probability": 1.0, "by_prompt": [1.0]}]]}'
        )
        self.send_response(500 if lost else 200)
        self.send_header("content-type", "text/plain" if lost else "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - its name there
        """Nothing on stderr."""


def test_the_client_asks_again_where_a_replica_was_lost():
    with HTTPServer(("127.0.0.1", 0), _LosesTheFirst) as before:
        thread = threading.Thread(target=before.serve_forever)
        thread.start()
        with askwell.Client(f"http://127.0.0.1:{before.server_port}", "soft") as client:
            assert client.ask("iron")[0].y == "Fe"
        before.shutdown()
        thread.join(600)
    assert len(_LosesTheFirst.asked) == 2


def _hold(at: Served) -> threading.Event:
    """Keeps the LMs' thread busy until the event is set."""
    release, began = threading.Event(), threading.Event()

    def wait(_lms: object) -> None:
        began.set()
        assert release.wait(600)

    at.service.queue.call(wait)
    assert began.wait(600)
    return release


def test_a_full_queue_is_429_with_retry_after(at, http):
    release = _hold(at)
    try:
        full = {"mixture": "soft", "xs": [f"full {number}" for number in range(51)]}
        response = http.post("/api/v1/ask", json=full)
        assert response.status_code == 429
        assert 1 <= int(response.headers["retry-after"]) <= 60
        assert "try again in" in response.json()["error"]
    finally:
        release.set()
    full["xs"].pop()
    assert http.post("/api/v1/ask", json=full).status_code == 200


def test_a_client_that_goes_away_frees_its_places(at, http):
    release = _hold(at)
    try:
        before = at.service.queue.counts.cancelled
        with pytest.raises(httpx.ReadTimeout):
            http.post("/api/v1/ask", json={"mixture": "soft", "xs": ["gone", "away"]}, timeout=0.5)
        http.close()
        while at.service.queue.counts.cancelled == before:
            pass
        assert at.service.queue.waiting == 0
    finally:
        release.set()


def test_many_clients_are_asked_together(at):
    release = _hold(at)
    before = at.service.queue.counts.batches
    found: dict[int, dict] = {}

    def ask(number: int) -> None:
        body = {"mixture": ("soft", "deep")[number % 2], "xs": [f"together {number}"], "top": 1}
        found[number] = httpx.post(f"{at.address}/api/v1/ask", json=body, timeout=600).json()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    while at.service.queue.waiting < 12:
        pass
    release.set()
    for thread in threads:
        thread.join(600)
    assert at.service.queue.counts.batches - before == 1
    assert all("answers" in found[number] for number in range(12))


def test_the_document_has_examples_and_names_every_address(http):
    document = http.get("/api/v1/openapi.json").json()
    assert {
        "/api/v1/ask", "/api/v1/ask/stream", "/api/v1/mixtures", "/api/v1/lms", "/api/v1/runs", "/api/v1/runs/{name}",
        "/api/v1/jobs", "/api/v1/jobs/{job}", "/api/v1/jobs/{job}/events", "/healthz", "/metrics",
    } <= set(document["paths"])  # fmt: skip
    for name in ("AskRequest", "Answers", "TrainRequest"):
        assert document["components"]["schemas"][name]["examples"]


def test_a_job_is_started_watched_and_asked(tmp_path):
    (tmp_path / "mine").mkdir()
    facts = [{"x": fact.x, "y": fact.y} for fact in askwell.load_relation("testbed:symbol").train]
    body = {"lm": "testbed:bert", "relation": "symbols", "facts": facts, "templates": ["the symbol of [X] is [Y] ."]}
    with served(Settings(runs=tmp_path / "mine")) as at, httpx.Client(base_url=at.address, timeout=600) as http:
        started = http.post("/api/v1/jobs", json={**body, "pairs": 200})
        assert started.status_code == 201
        job = started.json()
        with http.stream("GET", f"/api/v1/jobs/{job['id']}/events") as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            events = [json.loads(line.removeprefix("data: ")) for line in response.iter_lines() if line]
        assert [event["state"] for event in events][-1] == "done"
        last = events[-1]
        assert re.fullmatch(r"symbols-[0-9a-f]{12}", last["mixture"])
        assert last["history"][0]["pairs"] == 0
        assert last["history"][-1]["pairs"] > 0
        answer = http.post("/api/v1/ask", json={"mixture": last["mixture"], "xs": ["iron"]})
        assert answer.status_code == 200
        assert http.get(f"/api/v1/jobs/{job['id']}").json() == last
        assert http.get("/api/v1/jobs").json()["jobs"] == [last]
        long = http.post("/api/v1/jobs", json={**body, "pairs": 900_000}).json()
        with http.stream("GET", f"/api/v1/jobs/{long['id']}/events") as response:
            for line in response.iter_lines():
                event = json.loads(line.removeprefix("data: ")) if line else {}
                if event.get("history"):
                    assert http.delete(f"/api/v1/jobs/{long['id']}").status_code == 200
        assert http.get(f"/api/v1/jobs/{long['id']}").json()["state"] == "cancelled"


def test_training_can_be_switched_off(made_runs):
    with served(Settings(runs=made_runs, training=False)) as at:
        body = {"lm": "testbed:bert", "relation": "testbed:symbol", "templates": ["[X] [Y]"]}
        response = httpx.post(f"{at.address}/api/v1/jobs", json=body)
        assert (response.status_code, response.json()) == (403, {"error": "training is switched off here"})
