import pytest


@pytest.fixture(autouse=True)
def no_data_folder_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASKWELL_DATA", raising=False)
