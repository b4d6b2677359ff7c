"""What needs no LM imports neither torch nor transformers, which takes seconds."""

import subprocess
import sys

import pytest
from builders.stores import A, keep_arrows, new_store

_WITHOUT = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers"):
            raise AssertionError(f"{name} is imported")

sys.meta_path.insert(0, Refused())
from askwell.cli.main import main

main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("train", "--help"),
        ("runs", "STORE", "--sort", "P@1", "--where", "seed = 0"),
        ("compare", "STORE", "STORE", "--where-a", "setting = 'soft'", "--where-b", "setting = 'init'"),
        ("report", "STORE", "--out", "OUT/report"),
        ("export", "STORE", "--where", f"setting = 'deep' and relation = '{A}'", "--out", "OUT/run.html"),
        ("audit", "testbed:capital"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_that_needs_no_lm_imports_no_torch(arguments, tmp_path):
    keep_arrows(new_store(tmp_path / "store"))
    given = [word.replace("STORE", str(tmp_path / "store")).replace("OUT", str(tmp_path)) for word in arguments]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, *given], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout or arguments[0] == "export"
