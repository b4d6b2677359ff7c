"""`make test-full` can start: everything that it adds to `make test` can at least be collected."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_file_of_the_long_checks_can_be_collected() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = os.environ | {"ASKWELL_TEST_FULL": "1"}
    told = subprocess.run([*command, "tests"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout[-3000:] + told.stderr[-3000:]
