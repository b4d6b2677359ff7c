import os
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_data_folder_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASKWELL_DATA", raising=False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    shared = Path(os.environ.get("ASKWELL_SHARED") or PROJECT.parent / "shared")
    if not (shared / "data" / "facts").is_dir():
        pytest.skip("the released facts are not here: set ASKWELL_SHARED to the folder that holds data/facts")
    return shared / "data"
