"""What holds for all tests: types and shapes are checked, nothing is kept from one to the next; the released data."""

import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
import torch

# Also in the processes that tests start: threads that wait for each other at every small step take many times longer
# where other processes keep the cores busy, as the workers of pytest-xdist do.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"  # no test needs the network, which would be tried again and again
sys.path.insert(0, str(Path(__file__).parent))
import checking

# A shell starts what runs in the background deaf to Ctrl-C, and what tests start would be so, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
checking.check_types()  # of whatever is imported of the package from here on
torch.set_num_threads(1)
# What tests leave in the cache is not the user's, also where a fixture is made once for many tests.
_cache = tempfile.TemporaryDirectory(prefix="askwell-tests-")
os.environ["ASKWELL_CACHE"] = _cache.name


@pytest.fixture(autouse=True)
def _shapes_checked_anew() -> None:
    checking.a_test_begins()


@pytest.fixture(autouse=True)
def _cache_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What one test has chosen for an LM is not known to the next."""
    monkeypatch.setenv("ASKWELL_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def finished_demo(tmp_path_factory) -> Path:
    """The folder of a demo on the relation symbol."""
    from builders.commands import exit_code
    from builders.once import once

    def make(folder: Path) -> None:
        assert exit_code("demo", "--out", folder, "--relations", "symbol") == 0

    return once(tmp_path_factory, "demo", make)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The paper's facts and prompts, which are no part of the project: without them, what needs them is skipped."""
    beside_the_project = Path(__file__).resolve().parents[2] / "shared"
    shared = Path(os.environ.get("ASKWELL_SHARED") or beside_the_project)
    if not (shared / "data" / "facts").is_dir():
        pytest.skip("the released data is not here: set ASKWELL_SHARED to the folder that holds data/facts")
    return shared / "data"
