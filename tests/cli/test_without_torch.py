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
    done = without_torch(arguments, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout or arguments[0] == "export"


def without_torch(arguments, tmp_path):
    given = [word.replace("STORE", str(tmp_path / "store")).replace("OUT", str(tmp_path)) for word in arguments]
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT, *given], capture_output=True, text=True, timeout=600, check=False
    )


_THREE = ("train", "--lm", "testbed:bert", "--facts", "OUT/three.csv", "--out", "OUT/run")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((*_THREE[:-3], "OUT/nowhere.csv", *_THREE[-2:], "--prompts", "[X] in [Y]"), "nowhere.csv"),
        ((*_THREE, "--prompts", "[X] alone"), "[Y]"),
        ((*_THREE, "--prompts", "[X] in [Y]", "--folds", "5"), "but there are 3"),
        (("baseline", "lama", *_THREE[1:], "--prompts", "[X] alone"), "[Y]"),
        (("sweep", "OUT/nowhere.toml"), "nowhere.toml"),
        (("probe", "testbed:bert", "--set", "nonsense"), "--set nonsense: nonsense: there is no such file"),
        (("probe", "testbed:bert", "--set", "trex_orginal"), "; did you mean trex_original?"),
        (("ask", "OUT/stroe", "Peru"), "did you mean OUT/store?"),
        (("evaluate", "OUT/stroe"), "did you mean OUT/store?"),
    ],
    ids=["facts", "prompts", "folds", "baseline", "sweep", "probe", "set", "ask", "evaluate"],
)
def test_mistakes_are_told_before_torch_is_loaded(arguments, problem, tmp_path):
    (tmp_path / "three.csv").write_text("x,y\nPeru,Lima\nFrance,Paris\nItaly,Rome\n")
    keep_arrows(new_store(tmp_path / "store"))
    done = without_torch(arguments, tmp_path)
    assert done.returncode == 2, done.stderr
    assert problem.replace("OUT", str(tmp_path)) in done.stderr
