import pytest
from builders.specs import paper_spec
from builders.stores import new_store
from looked_at import trained_looking

from askwell.mixture.mixture import Mixture
from askwell.runs.store import Store


@pytest.fixture(scope="session")
def bert() -> Mixture:
    return trained_looking("bert")


@pytest.fixture(scope="session")
def gpt2() -> Mixture:
    return trained_looking("gpt2", paper_spec(initial="random", copies=2))


@pytest.fixture(scope="session")
def deep_bart() -> Mixture:
    return trained_looking("bart", paper_spec(deep=True))


@pytest.fixture
def store(tmp_path) -> Store:
    return new_store(tmp_path)
