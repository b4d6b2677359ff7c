import sys
from pathlib import Path

import pytest

MAKER = Path(__file__).resolve().parents[2] / "scripts" / "testbed"
sys.path.insert(0, str(MAKER))  # what made the testbed is no part of the package


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    from text import generate_text

    return generate_text()
