"""Whole runs as a shell starts them: repeated, interrupted, killed, out of disk."""

import os
import random
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders.commands import Signalled, exit_code, signalled
from builders.sweeps import files_in
from builders.worlds import PAIRS, TEMPLATES, write_relation

FULL = bool(os.environ.get("ASKWELL_TEST_FULL"))
EPOCHS = 60 if FULL else 20
SECONDS = 600
"""For one run, on a busy machine."""


def arguments(lm: Path, facts: Path, out: Path, *more: object) -> list[object]:
    return [
        "train", "--lm", lm, "--facts", facts, "--prompts", TEMPLATES[0], "--prompts", TEMPLATES[1], "--out", out,
        "--deep", "--recipe", "paper", "--epochs", EPOCHS, "--patience", EPOCHS, "--threads", 1,
        "--learning-rate", "0.003", *more,
    ]  # fmt: skip


def command(*of_run) -> list[str]:
    return [sys.executable, "-m", "askwell", *map(str, arguments(*of_run))]


def run(*of_run, **options) -> subprocess.CompletedProcess:
    return subprocess.run(command(*of_run), capture_output=True, text=True, timeout=SECONDS, **options)


def stop(with_signal: int, *of_run, epochs: int = 3) -> Signalled:
    """A run that gets a signal when it has kept its state after this many epochs, and would do so again."""
    return signalled(with_signal, *arguments(*of_run), before="checkpoint.safetensors", times=epochs + 1)


@pytest.fixture(scope="module")
def undisturbed(lms, tmp_path_factory):
    """The relation, and the files of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    facts = write_relation(folder / "capitals", train=PAIRS[:6], dev=PAIRS[6:8], test=PAIRS[6:])
    assert exit_code(*arguments(lms["bert"], facts, folder / "out")) == 0
    return facts, files_in(folder / "out")


@pytest.mark.slow
def test_the_same_seed_gives_identical_files_in_any_process_and_order_of_lines(lms, undisturbed, tmp_path):
    facts, expected = undisturbed
    shuffled = tmp_path / "capitals"
    shuffled.mkdir()
    for path in facts.iterdir():
        lines = path.read_text().splitlines()
        random.Random(7).shuffle(lines)
        (shuffled / path.name).write_text("\n".join(lines))
    done = run(lms["bert"], shuffled, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert files_in(tmp_path / "out") == expected


@pytest.mark.slow
@pytest.mark.parametrize("with_signal", [signal.SIGINT, signal.SIGTERM] if FULL else [signal.SIGINT])
def test_ctrl_c_keeps_the_best_state_and_resume_goes_on(askwell, lms, undisturbed, tmp_path, with_signal):
    facts, expected = undisturbed
    out = tmp_path / "out"
    stopped = stop(with_signal, lms["bert"], facts, out)
    assert stopped.code == 130
    assert "--resume continues" in stopped.err
    assert "Traceback" not in stopped.err
    asked = askwell("ask", out, "Paris", "--json")
    assert asked.code == 0, asked.err
    done = askwell(*arguments(lms["bert"], facts, out, "--resume"))
    assert done.code == 0, done.err
    assert files_in(out) == expected


KILLS = 8 if FULL else 1


@pytest.mark.slow
@pytest.mark.parametrize("kill", range(KILLS))
def test_a_killed_run_goes_on_where_it_was(askwell, lms, undisturbed, tmp_path, kill):
    facts, expected = undisturbed
    out = tmp_path / "out"
    assert stop(signal.SIGKILL, lms["bert"], facts, out, epochs=1 + 5 * kill).code == -signal.SIGKILL
    refused = askwell(*arguments(lms["bert"], facts, out))
    assert refused.code == 2
    assert "unfinished run" in refused.err
    done = askwell(*arguments(lms["bert"], facts, out, "--resume"))
    assert done.code == 0, done.err
    left = {name: content for name, content in files_in(out).items() if not name.startswith(".")}
    assert left == expected


@pytest.mark.slow
def test_a_full_disk_is_a_clear_failure_and_leaves_nothing_half_written(lms, undisturbed, tmp_path):
    facts, expected = undisturbed
    limit = (
        len(expected["mixture/mixture.safetensors"]) // 2
    )  # the checkpoint and the mixture do not fit, small files do

    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = run(lms["bert"], facts, tmp_path / "out", preexec_fn=small_disk)
    assert done.returncode == 1, done.stderr
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert set(files_in(tmp_path / "out")) <= {"history.jsonl"}
