"""Tests that run in the background check the same things as others."""

import subprocess
import sys
from pathlib import Path

import pytest

IGNORES_CTRL_C = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
import conftest
subprocess.run([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGINT)"])
"""


@pytest.mark.slow
def test_what_tests_start_can_be_interrupted_though_the_shell_ignores_ctrl_c():
    """As a shell without job control has it for all that it starts with `&`: `make test-full &` in a script."""
    done = subprocess.run(
        [sys.executable, "-c", IGNORES_CTRL_C], cwd=Path(__file__).parents[1],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "KeyboardInterrupt" in done.stderr
