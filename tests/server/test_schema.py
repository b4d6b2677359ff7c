"""The OpenAPI document is true: requests generated from it get what it says, and nothing breaks the service."""

import os
from typing import Any

import pytest
import schemathesis
from builders.servers import served
from hypothesis import HealthCheck, Phase, given, settings

from askwell.server.settings import Settings

_EXAMPLES = 100 if os.environ.get("ASKWELL_TEST_FULL") else 8
_OPERATIONS = (
    ("/api/v1/ask", "POST"),
    ("/api/v1/ask", "GET"),
    ("/api/v1/ask/stream", "POST"),
    ("/api/v1/mixtures", "GET"),
    ("/api/v1/lms", "GET"),
    ("/api/v1/runs", "GET"),
    ("/api/v1/runs/{name}", "GET"),
    ("/api/v1/jobs", "GET"),
    ("/api/v1/jobs", "POST"),
    ("/api/v1/jobs/{job}", "GET"),
    ("/api/v1/jobs/{job}", "DELETE"),
    ("/api/v1/jobs/{job}/events", "GET"),
    ("/healthz", "GET"),
    ("/metrics", "GET"),
)


@pytest.fixture(scope="module")
def at(made_runs):
    with served(Settings(runs=made_runs, training=False)) as running:
        yield running


@pytest.fixture(scope="module")
def document(at) -> Any:
    return schemathesis.openapi.from_url(f"{at.address}/api/v1/openapi.json")


def test_these_are_all_operations(document):
    found = {(one.ok().path, one.ok().method.upper()) for one in document.get_all_operations()}
    assert found == set(_OPERATIONS)


@pytest.mark.parametrize(("path", "method"), _OPERATIONS)
def test_every_answer_is_as_the_document_says(path, method, document, at):
    operation = document[path][method]

    @settings(
        max_examples=_EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        response = case.call(base_url=at.address, timeout=600)
        assert response.status_code < 500, response.text
        case.validate_response(response)

    check()
