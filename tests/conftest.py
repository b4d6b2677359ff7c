"""Shape annotations of the whole package are checked while its tests run; where the released data is."""

import os
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

# Also in the processes that tests start: threads that wait for each other at every small step take many times longer
# where other processes keep the cores busy, as the workers of pytest-xdist do.
os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parent))
install_import_hook("askwell", "beartype.beartype")
torch.set_num_threads(1)
# What tests leave in the cache is not the user's, also where a fixture is made once for many tests.
_cache = tempfile.TemporaryDirectory(prefix="askwell-tests-")
os.environ["ASKWELL_CACHE"] = _cache.name


@pytest.fixture(autouse=True)
def _cache_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What one test has chosen for an LM is not known to the next."""
    monkeypatch.setenv("ASKWELL_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The paper's facts and prompts, which are no part of the project: without them, what needs them is skipped."""
    beside_the_project = Path(__file__).resolve().parents[2] / "shared"
    shared = Path(os.environ.get("ASKWELL_SHARED") or beside_the_project)
    if not (shared / "data" / "facts").is_dir():
        pytest.skip("the released data is not here: set ASKWELL_SHARED to the folder that holds data/facts")
    return shared / "data"
