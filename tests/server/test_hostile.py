"""Requests that nobody should make: a clear refusal, and the next request is served."""

import json
import os
import re
import shutil
import socket
from collections import Counter
from typing import NoReturn
from urllib.parse import quote

import httpx
import pytest
from builders.servers import served
from builders.verdicts import judged, keep_diff
from builders.worlds import PAIRS
from fuzz import hostile
from fuzz.draws import Draws, FromSeed

from askwell.server.refusals import Refused
from askwell.server.settings import LONGEST_TEXT, MOST_XS, Settings

FULL = bool(os.environ.get("ASKWELL_TEST_FULL"))
TOKEN = "a-token-of-twenty-four"


@pytest.fixture(scope="module")
def at(made_runs):
    with served(Settings(runs=made_runs, body=200_000)) as running:
        yield running


@pytest.fixture(autouse=True)
def _still_serves(at):
    yield
    answer = httpx.post(f"{at.address}/api/v1/ask", json={"mixture": "soft", "xs": ["iron"]}, timeout=600)
    assert answer.status_code == 200


def ask(at, **body):
    return httpx.post(f"{at.address}/api/v1/ask", json=body, timeout=600)


def error(response: httpx.Response, status: int) -> str:
    assert response.status_code == status, response.text
    return response.json()["error"]


@pytest.mark.parametrize(
    "name",
    [
        "../soft",
        "../../etc/passwd",
        "/etc/passwd",
        "soft/../deep",
        "soft\u0000",
        "..",
        "%2e%2e",
        "soft/mixture",
        "C:\\",
    ],
)
def test_names_that_look_like_paths_are_unknown_names(at, name):
    assert "there is no mixture" in error(ask(at, mixture=name, xs=["iron"]), 404)
    response = httpx.get(f"{at.address}/api/v1/runs/{quote(name, safe='')}", timeout=600)
    assert response.status_code in (404, 400)
    assert "root:" not in response.text


def test_static_files_cannot_be_left(at):
    for path in ("/static/../api.py", "/static/%2e%2e/api.py", "/static/..%2fapi.py", "/static//etc/passwd"):
        with socket.create_connection(("127.0.0.1", at.port)) as raw:
            raw.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{at.port}\r\nConnection: close\r\n\r\n".encode())
            received = b"".join(iter(lambda: raw.recv(65536), b""))
        assert received.startswith(b"HTTP/1.1 404"), path


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "mixture: Field required"),
        ({"mixture": "soft", "xs": []}, "xs: "),
        ({"mixture": "soft", "xs": "iron"}, "xs: "),
        ({"mixture": "soft", "xs": [1]}, "xs.0: "),
        ({"mixture": "soft", "xs": [""]}, "xs.0: "),
        ({"mixture": "soft", "xs": ["x" * (LONGEST_TEXT + 1)]}, "xs.0: "),
        ({"mixture": "soft", "xs": ["x"] * (MOST_XS + 1)}, "xs: "),
        ({"mixture": "soft", "xs": ["iron"], "top": 0}, "top: "),
        ({"mixture": "soft", "xs": ["iron"], "top": 10**9}, "top: "),
        ({"mixture": "soft", "xs": ["iron"], "path": "/etc"}, "path: "),
        ({"mixture": ["soft"], "xs": ["iron"]}, "mixture: "),
        ({"mixture": "soft", "xs": ["iron"], "mixture ": 1}, "mixture : "),
        ([], ""),
        ("iron", ""),
    ],
)
def test_wrong_types_and_sizes_are_named(at, body, told):
    assert told in error(httpx.post(f"{at.address}/api/v1/ask", json=body, timeout=600), 422)


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"\xff\xfe", b"nonsense", b'{"mixture": "soft", "xs": ["iron"]', b"[" * 50_000]
)
def test_broken_json_is_told(at, raw):
    response = httpx.post(
        f"{at.address}/api/v1/ask", content=raw, headers={"content-type": "application/json"}, timeout=600
    )
    assert response.status_code in (400, 422)
    assert response.json()["error"]


def test_text_that_is_no_text_is_refused(at):
    raw = json.dumps({"mixture": "soft", "xs": ["\ud800"]}).encode("ascii")
    response = httpx.post(f"{at.address}/api/v1/ask", content=raw, headers={"content-type": "application/json"})
    assert "xs.0: " in error(response, 422)


@pytest.mark.parametrize(
    "x", ["<script>alert(1)</script>", "[MASK]", "[X] [Y]", "\u202e", "日本", "🜨", "\n\n\n", "a\u0000b"]
)
def test_odd_texts_are_answered_or_refused_in_words(at, x):
    response = ask(at, mixture="soft", xs=[x])
    assert response.status_code in (200, 422)
    assert response.headers["content-type"] == "application/json"


def test_an_x_beyond_the_lms_context_is_told(at):
    assert "longer than the LM's context" in error(ask(at, mixture="soft", xs=["iron " * 190]), 422)


def test_large_bodies_are_refused_with_and_without_a_length(at):
    assert "bytes" in error(httpx.post(f"{at.address}/api/v1/ask", content=b"x" * 300_000, timeout=600), 413)

    def chunks():
        for _ in range(400):
            yield b"x" * 1000

    try:
        response = httpx.post(f"{at.address}/api/v1/ask", content=chunks(), timeout=600)
    except httpx.TransportError:
        return  # the server may end the connection while the body is still being sent
    assert response.status_code == 413


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "", "[::1", "[x]"]
)
def test_other_host_names_are_refused(at, host):
    with socket.create_connection(("127.0.0.1", at.port)) as raw:
        raw.sendall(f"GET /api/v1/mixtures HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        received = b"".join(iter(lambda: raw.recv(65536), b""))
    assert received.startswith((b"HTTP/1.1 421", b"HTTP/1.1 400"))


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_posts_from_other_sites_are_refused(at, headers):
    body = {"mixture": "soft", "xs": ["iron"]}
    assert "another site" in error(httpx.post(f"{at.address}/api/v1/ask", json=body, headers=headers), 403)


def test_our_own_origin_is_accepted(at):
    body = {"mixture": "soft", "xs": ["iron"]}
    assert httpx.post(f"{at.address}/api/v1/ask", json=body, headers={"origin": at.address}).status_code == 200


def test_every_response_forbids_what_comes_from_elsewhere(at):
    for path in ("/healthz", "/nowhere", "/api/v1/mixtures"):
        response = httpx.get(f"{at.address}{path}")
        assert response.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in response.headers


def test_a_form_cannot_be_mistaken_for_json(at):
    raw = b'{"mixture": "soft", "xs": ["iron"]}'
    response = httpx.post(f"{at.address}/api/v1/ask", content=raw, headers={"content-type": "text/plain"})
    assert response.status_code == 422


def form(draws: Draws) -> dict[str, str]:
    """What somebody may enter on the page Train, with some of it hostile."""
    entered = {
        "lm": "testbed:bert", "relation": "capitals", "facts": "", "templates": "the capital of [X] is [Y] .",
        "candidates": "", "split": "", "shots": "", "seeds": "", "budget": "", "x": "x", "y": "y", "deep": "",
    }  # fmt: skip
    for field in [draws.choice(sorted(entered)) for _ in range(draws.integer(0, 2))]:
        entered[field] = hostile.text(draws)
    return {field: text.encode("utf-8", "replace").decode() for field, text in entered.items()}


def upload(draws: Draws) -> tuple[str, bytes]:
    """The name of a file and what is in it, which nearly are facts."""
    suffix, delimiter = draws.choice(((".csv", ","), (".tsv", "\t"), (".jsonl", "")))
    lines = [
        json.dumps({"x": x, "y": y}) if suffix == ".jsonl" else f"{x}{delimiter}{y}" for x, y in [("x", "y"), *PAIRS]
    ]
    content = "\n".join(lines).encode()
    content = hostile.spoil_table(draws, content, delimiter) if delimiter else hostile.spoil_json_lines(draws, content)
    odd = hostile.text(draws).encode("utf-8", "replace").decode()
    return draws.choice((f"facts{suffix}", f"{odd}{suffix}", odd)), content


@pytest.mark.parametrize("shard", range(50 if FULL else 1))
def test_hostile_uploads_are_read_or_refused_in_words(at, shard, monkeypatch, record_property):
    """Twenty in the ordinary run, a thousand in the long checks; what could be trained is not."""

    def stop(*_: object) -> NoReturn:
        raise Refused(403, "training is switched off here")

    monkeypatch.setattr(at.service, "train", stop)
    statuses = Counter()
    for case in range(20):
        draws = FromSeed(f"uploads-{shard}-{case}")
        address, entered, file = draws.choice(("/train/check", "/train")), form(draws), upload(draws)
        response = httpx.post(f"{at.address}{address}", data=entered, files={"file": file}, timeout=600)
        statuses[response.status_code] += 1
        assert response.status_code in (200, 400, 403, 404, 413, 422), (case, entered, file, response.text)
        assert "Traceback" not in response.text
    assert len(statuses) > 1, statuses
    record_property("cases", 20)


def test_the_page_starts_no_more_seeds_than_can_wait(at):
    body = {"lm": "testbed:bert", "relation": "testbed:symbol", "templates": "the symbol of [X] is [Y] ."}
    response = httpx.post(f"{at.address}/train", data=body | {"seeds": "9"}, timeout=600)
    assert response.status_code == 422
    assert "9 seeds are too many for the page: 8 at most" in response.text
    assert not httpx.get(f"{at.address}/api/v1/jobs").json()["jobs"]


@pytest.mark.parametrize("shard", range(50 if FULL else 1))
def test_a_hostile_diff_is_shown_or_refused_in_words(shard, tmp_path, record_property):
    keep_diff(tmp_path / "diff", judged())
    saved = tmp_path / "diff" / "diff.json"
    whole = saved.read_bytes()
    with served(Settings(runs=tmp_path)) as own:
        for case in range(20):
            saved.write_bytes(hostile.spoil_json_file(FromSeed(f"diffs-{shard}-{case}"), whole))
            for address in ("/diffs", "/diffs/diff"):
                response = httpx.get(f"{own.address}{address}", timeout=600)
                assert "the service's log says why" not in response.text, (case, saved.read_bytes())
    record_property("cases", 20)


def test_with_a_token_nothing_is_shown_without_it(made_runs):
    with served(Settings(runs=made_runs, token=TOKEN)) as at:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}, {"cookie": "askwell-token=x"}):
            response = httpx.get(f"{at.address}/api/v1/mixtures", headers=headers)
            assert "needs its token" in error(response, 401)
        assert httpx.get(f"{at.address}/?token=wrong").status_code == 401
        assert httpx.get(f"{at.address}/healthz").status_code == 200
        good = {"authorization": f"Bearer {TOKEN}"}
        assert httpx.get(f"{at.address}/api/v1/mixtures", headers=good).status_code == 200
        with httpx.Client(base_url=at.address) as browser:
            first = browser.get(f"/api/v1/mixtures?token={TOKEN}")
            assert first.status_code == 303
            assert first.headers["location"] == "/api/v1/mixtures"
            assert "HttpOnly" in first.headers["set-cookie"]
            assert browser.get("/api/v1/mixtures").status_code == 200


def test_a_part_of_a_page_says_that_its_lm_is_being_loaded(runs):
    asked = {"hx-request": "true", "hx-target": "answers"}
    with served(Settings(runs=runs)) as at:
        answer = httpx.get(f"{at.address}/", params={"about": "deep", "x": "iron"}, headers=asked)
    assert answer.status_code == 200
    assert "wait=true" in answer.text


def test_runs_that_are_damaged_or_deleted_while_serving(runs):
    with served(Settings(runs=runs)) as at:
        assert ask(at, mixture="deep", xs=["iron"]).status_code == 200
        tensors = runs / "deep" / "mixture" / "mixture.safetensors"
        config = runs / "deep" / "mixture" / "config.json"
        tensors.write_bytes(tensors.read_bytes()[:100])
        config.write_bytes(config.read_bytes())  # as a new save would
        told = error(ask(at, mixture="deep", xs=["iron"]), 500)
        assert "truncated" in told
        config.write_text("{")
        assert "config.json: is not the description" in error(ask(at, mixture="deep", xs=["iron"]), 500)
        assert str(runs) not in told
        shutil.rmtree(runs / "deep")
        assert "there is no mixture" in error(ask(at, mixture="deep", xs=["iron"]), 404)
        (runs / "soft" / "run.json").write_text("{")
        assert error(ask(at, mixture="soft", xs=["iron"]), 404)
        assert "damaged" in httpx.get(f"{at.address}/api/v1/runs").json()["problems"]["soft"]
        assert ask(at, mixture="hard", xs=["iron"]).status_code == 200
        shutil.rmtree(runs)
        assert error(ask(at, mixture="hard", xs=["iron"]), 404)
        assert httpx.get(f"{at.address}/healthz").status_code == 200


ACTING = "\x1b[2J\x9b31m\u202egnp\u2066\uffff"


def test_names_that_would_act_are_shown_as_escapes(runs):
    shutil.copytree(runs / "soft", runs / f"soft{ACTING}")
    record = runs / "hard" / "run.json"
    document = json.loads(record.read_text(encoding="utf-8"))
    document["spec"]["setting"] = f"hard{ACTING}"
    record.write_text(json.dumps(document), encoding="utf-8")
    name = quote(f"soft{ACTING}")
    with served(Settings(runs=runs)) as running:
        for path in ("/", "/runs", f"/runs/{name}", "/trust", f"/prompts?about={name}", f"/?about={name}&x=iron"):
            page = httpx.get(f"{running.address}{path}", timeout=600).text
            shown = re.sub(r' value="[^"]*"', "", page)  # what a form sends back is as it was
            assert not set(ACTING) & set(shown) - set("[2J31mgnp"), path
            assert "\\u202egnp" in shown or not path.startswith("/runs"), path
        for path in ("runs", "mixtures", f"runs/{name}", f"ask?mixture={name}&x=iron"):
            answer = httpx.get(f"{running.address}/api/v1/{path}", timeout=600)
            assert answer.status_code == 200, path
            assert answer.text.isascii(), path
        assert f"soft{ACTING}" in [run["name"] for run in httpx.get(f"{running.address}/api/v1/runs").json()["runs"]]
        refused = httpx.get(f"{running.address}/api/v1/runs/{quote(ACTING)}")
        assert refused.text.isascii()
        assert ACTING in refused.json()["error"] or "\\x1b" in refused.json()["error"]
