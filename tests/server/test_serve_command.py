"""`askwell serve`, as a process."""

import re
import signal
import socket
import subprocess
import sys

import httpx
import pytest
from builders.commands import exit_code


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--host", "0.0.0.0"], "needs a token"),
        (["--host", "0.0.0.0", "--token", "short"], "at least 12 characters"),
        (["nowhere"], "there is no such folder"),
        (["--port", "70000"], "port"),
        (["--memory", "0"], "memory"),
    ],
)
def test_mistakes_are_told_at_once(capsys, monkeypatch, tmp_path, arguments, told):
    monkeypatch.chdir(tmp_path)
    assert exit_code("serve", *arguments) == 2
    assert told in capsys.readouterr().err


def test_a_used_port_is_answered_with_a_free_one(capsys, made_runs):
    with socket.create_server(("127.0.0.1", 0)) as used:
        assert exit_code("serve", str(made_runs), "--port", str(used.getsockname()[1])) == 1
    told = re.search(r"is already in use: choose another, such as --port (\d+)", capsys.readouterr().err)
    assert told is not None
    socket.create_server(("127.0.0.1", int(told[1]))).close()


def test_the_first_line_is_the_address_and_sigterm_ends_it_well(made_runs):
    command = [sys.executable, "-m", "askwell", "serve", str(made_runs), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:")
            body = {"mixture": "soft", "xs": [f"iron {number}" for number in range(500)], "top": 1}
            with httpx.stream("POST", f"{address}/api/v1/ask/stream", json=body, timeout=600) as response:
                lines = response.iter_lines()
                next(lines)
                process.send_signal(signal.SIGTERM)  # in the middle of an answer
                rest = list(lines)
            assert len(rest) == 499
            assert process.wait(600) == 0
            assert process.stderr is not None
            assert "Traceback" not in process.stderr.read()
            with pytest.raises(httpx.ConnectError):
                httpx.get(address)
        finally:
            process.kill()
