import pytest

from askwell.testbed import text


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    return text.generate_text()
