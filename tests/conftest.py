"""What applies to all tests: types and shapes are checked, and nothing is kept from one test to the next."""

import os
import signal
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# Processes that tests start inherit this. Threads that wait for each other at every small step take many times longer
# when other processes keep the cores busy, as the workers of pytest-xdist do.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"  # no test needs the network, and retries would take long
from builders import checking

# A shell lets background jobs ignore Ctrl-C, and the processes that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
checking.check_types()  # in all modules of the package that are imported from here on
torch.set_num_threads(1)
settings.register_profile("whatever the load", deadline=None)  # a busy machine must fail no test
settings.load_profile("whatever the load")
# No test writes to the user's own cache, not even a fixture that is made once for many tests.
_cache = tempfile.TemporaryDirectory(prefix="askwell-tests-")
os.environ["ASKWELL_CACHE"] = _cache.name


@pytest.fixture(autouse=True)
def _shapes_checked_anew() -> None:
    checking.a_test_begins()


@pytest.fixture(autouse=True)
def _cache_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what one test caches about an LM from the next."""
    monkeypatch.setenv("ASKWELL_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def finished_demo(tmp_path_factory) -> Path:
    """Return the folder of a demo on the relation mark."""
    from builders.commands import exit_code
    from builders.once import once

    def make(folder: Path) -> None:
        assert exit_code("demo", "--out", folder, "--relations", "mark") == 0

    return once(tmp_path_factory, "demo", make)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of the paper's facts and prompts; skip the test where they are missing."""
    beside_the_project = Path(__file__).resolve().parents[2] / "shared"
    shared = Path(os.environ.get("ASKWELL_SHARED") or beside_the_project)
    if not (shared / "data" / "facts").is_dir():
        pytest.skip("the released data is not here: set ASKWELL_SHARED to the folder that holds data/facts")
    return shared / "data"
