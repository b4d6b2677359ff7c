"""Why a request is refused, and every error as a status and a sentence for clients; how a document is sent."""

import json
from dataclasses import dataclass, field
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from askwell.errors import AskwellError, UsageError


class PlainJSON(JSONResponse):
    """JSON in pure ASCII, which can be shown on any terminal."""

    def render(self, content: Any) -> bytes:
        """Encode a document as bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class Refused(AskwellError):
    """A request that the service does not carry out."""


class NoSuchName(Refused):
    """An unknown name: of a mixture, a run, a job or an LM."""


class Overloaded(Refused):
    """The queue is full; the request can be retried after some seconds."""

    def __init__(self, message: str, seconds: int) -> None:
        self.seconds = seconds
        super().__init__(f"{message}; try again in {seconds} s")


class Closing(Refused):
    """The service is shutting down."""


class SwitchedOff(Refused):
    """Something that this service does not offer."""


class ClientGone(Refused):
    """The client disconnected before it was answered."""


_STATUS: list[tuple[type[Exception], int]] = [
    (NoSuchName, 404),
    (Overloaded, 429),
    (Closing, 503),
    (SwitchedOff, 403),
    (ClientGone, 499),
    (UsageError, 422),
    (AskwellError, 500),
]


@dataclass(frozen=True)
class Explained:
    """What a client is told about an error."""

    status: int
    sentence: str
    headers: dict[str, str] = field(default_factory=dict)
    is_bug: bool = False
    """Whether its traceback belongs in the log."""


def explain(error: Exception) -> Explained:
    """Return the status and the sentence for an error; unexpected errors are not shown to clients."""
    if isinstance(error, HTTPException):
        return Explained(error.status_code, str(error.detail), dict(error.headers or {}))
    if isinstance(error, RequestValidationError):
        problems = error.errors()
        status = 400 if any(problem["type"] == "json_invalid" for problem in problems) else 422
        return Explained(status, "; ".join(map(_told, problems[:5])))
    for kind, status in _STATUS:
        if isinstance(error, kind):
            headers = {"retry-after": str(error.seconds)} if isinstance(error, Overloaded) else {}
            return Explained(status, str(error), headers)
    return Explained(500, "this failed; the service's log says why", is_bug=True)


def _told(problem: dict[str, Any]) -> str:
    if problem["type"] == "json_invalid":
        return f"the body is not JSON ({problem.get('ctx', {}).get('error', 'it cannot be read')})"
    where = ".".join(map(str, problem["loc"][1:]))  # the first is body, query or path
    return f"{where}: {problem['msg']}" if where else problem["msg"]
