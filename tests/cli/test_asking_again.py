"""`askwell ask` without an x, and at a server."""

import io
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from builders.commands import refused
from builders.worlds import TEMPLATES

from askwell.lms.load import load_lm
from askwell.mixture.mixture import Mixture


class _Keyboard(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def prompt(lms):
    return ("ask", "--lm", lms["bert"], "--prompts", TEMPLATES[0])


def test_each_line_of_a_pipe_is_an_x(askwell, prompt, lms, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("Paris\n\n Rome \n"))
    done = askwell(*prompt, "--top", "1")
    assert done.code == 0, done.err
    mixture = Mixture(load_lm(lms["bert"]), TEMPLATES[0])
    wanted = [[x, mixture.ask(x, top=1)[0].y] for x in ("Paris", "Rome")]
    assert [line.split("\t")[:2] for line in done.out.splitlines()] == wanted


def test_one_asks_again_and_again_on_a_terminal(askwell, prompt, monkeypatch):
    monkeypatch.setattr(sys, "stdin", _Keyboard("Paris\n" + "Paris " * 80 + "\nRome\n\nLima\n"))
    done = askwell(*prompt, "--json")
    assert done.code == 0, done.err
    documents = done.out.replace("x: ", "").split("]\n[")
    assert [x for x in ("Paris", "Rome", "Lima") if f'"x": "{x}"' in done.out] == ["Paris", "Rome"]
    assert len(documents) == 2
    assert "longer than the LM's context" in done.err  # and the next x is asked


@pytest.fixture
def served():
    """A server with the mixtures that it is given, which answers each x with its own letters turned round."""
    asked: list[dict] = []

    class Service(BaseHTTPRequestHandler):
        names = ("capitals", "rivers")

        def _reply(self, document):
            content = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self):
            self._reply({"mixtures": [{"name": name} for name in self.names]})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.append(body)
            answers = [[{"y": x[::-1], "probability": 0.25, "by_prompt": [0.25]}] for x in body["xs"]]
            self._reply({"answers": answers, "unseen": [0.0] * len(answers)})

        def log_message(self, format, *args):  # noqa: A002 - as http.server calls it
            pass

    with HTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", Service, asked
        server.shutdown()


def test_a_server_is_asked(askwell, served, monkeypatch, tmp_path):
    address, service, asked = served
    done = askwell("ask", "--server", address, "store/capitals", "abc", "def", "--top", "2", "--json")
    assert done.code == 0, done.err
    assert [(one["x"], one["answers"][0]["y"]) for one in done.json] == [("abc", "cba"), ("def", "fed")]
    assert (asked[0]["mixture"], asked[0]["top"]) == ("capitals", 2)
    monkeypatch.setenv("ASKWELL_SERVER", address)
    shown = askwell("ask", "rivers", "xyz").out
    assert "zyx" in shown
    assert "most confident" not in shown
    refused(askwell("ask", "lakes", "xyz"), "capitals, rivers")
    refused(askwell("ask", "rivers", "xyz", "--risk", "0.1"), "--server")
    service.names = ("rivers",)
    assert "zyx" in askwell("ask", "xyz").out  # the only mixture need not be named
