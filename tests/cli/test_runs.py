"""Whole runs as a shell starts them: repeated, interrupted, killed, out of disk."""

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders.worlds import PAIRS, TEMPLATES, write_relation

FULL = bool(os.environ.get("ASKWELL_TEST_FULL"))
EPOCHS = 60


def command(lm: Path, facts: Path, out: Path, *more: object) -> list[str]:
    arguments = [
        "train", "--lm", lm, "--facts", facts, "--prompts", TEMPLATES[0], "--prompts", TEMPLATES[1], "--out", out,
        "--deep", "--recipe", "paper", "--epochs", EPOCHS, "--patience", EPOCHS, "--threads", 1,
        "--learning-rate", "0.003", *more,
    ]  # fmt: skip
    return [sys.executable, "-m", "askwell", *map(str, arguments)]


def run(*arguments, **options) -> subprocess.CompletedProcess:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=300, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def stop_when_under_way(process: subprocess.Popen, out: Path, with_signal: int, epochs: int = 3) -> int:
    """Waits until some epochs are in the history, then sends the signal; gives the exit code."""
    history, deadline = out / "history.jsonl", time.monotonic() + 120
    while not (history.exists() and len(history.read_text().splitlines()) > epochs):
        assert process.poll() is None, "the run ended before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(with_signal)
    return process.wait(timeout=60)


@pytest.fixture(scope="module")
def undisturbed(lms, tmp_path_factory):
    """The relation, and the files of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    facts = write_relation(folder / "capitals", train=PAIRS[:6], dev=PAIRS[6:8], test=PAIRS[6:])
    done = run(lms["bert"], facts, folder / "out")
    assert done.returncode == 0, done.stderr
    return facts, contents(folder / "out")


@pytest.mark.slow
def test_the_same_seed_gives_identical_files_whatever_the_order_of_lines(lms, undisturbed, tmp_path):
    facts, expected = undisturbed
    shuffled = tmp_path / "capitals"
    shuffled.mkdir()
    for path in facts.iterdir():
        lines = path.read_text().splitlines()
        random.Random(7).shuffle(lines)
        (shuffled / path.name).write_text("\n".join(lines))
    done = run(lms["bert"], shuffled, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "out") == expected


@pytest.mark.slow
@pytest.mark.parametrize("with_signal", [signal.SIGINT, signal.SIGTERM] if FULL else [signal.SIGINT])
def test_ctrl_c_keeps_the_best_state_and_resume_goes_on(lms, undisturbed, tmp_path, with_signal):
    facts, expected = undisturbed
    out = tmp_path / "out"
    process = subprocess.Popen(
        command(lms["bert"], facts, out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert stop_when_under_way(process, out, with_signal) == 130
    errors = process.communicate()[1]
    assert "--resume goes on" in errors
    assert "Traceback" not in errors
    asked = subprocess.run(
        [sys.executable, "-m", "askwell", "ask", str(out), "Paris", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert asked.returncode == 0, asked.stderr
    done = run(lms["bert"], facts, out, "--resume")
    assert done.returncode == 0, done.stderr
    assert contents(out) == expected


KILLS = 8 if FULL else 1


@pytest.mark.slow
@pytest.mark.parametrize("kill", range(KILLS))
def test_a_killed_run_goes_on_where_it_was(lms, undisturbed, tmp_path, kill):
    facts, expected = undisturbed
    out = tmp_path / "out"
    process = subprocess.Popen(command(lms["bert"], facts, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert stop_when_under_way(process, out, signal.SIGKILL, epochs=1 + 5 * kill) == -signal.SIGKILL
    refused = run(lms["bert"], facts, out)
    assert refused.returncode == 2
    assert "unfinished run" in refused.stderr
    done = run(lms["bert"], facts, out, "--resume")
    assert done.returncode == 0, done.stderr
    left = {name: content for name, content in contents(out).items() if not name.startswith(".")}
    assert left == expected


@pytest.mark.slow
def test_a_full_disk_is_a_clear_failure_and_leaves_nothing_half_written(lms, undisturbed, tmp_path):
    facts, expected = undisturbed
    limit = len(expected["mixture.safetensors"]) // 2  # the checkpoint and the mixture do not fit, small files do

    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = run(lms["bert"], facts, tmp_path / "out", preexec_fn=small_disk)
    assert done.returncode == 1, done.stderr
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert set(contents(tmp_path / "out")) <= {"history.jsonl"}
