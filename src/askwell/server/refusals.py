"""Which requests are refused and why: every error as a status and a sentence, and the guard in front of the app.

Another site that a user visits can make their browser send requests here. It cannot choose the Host header (so a name
that was rebound to this address is refused), and it cannot hide its Origin (so its posts are).
"""

import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlencode, urlsplit

from fastapi.exceptions import RequestValidationError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from askwell.errors import AskwellError, UsageError
from askwell.server.settings import Settings


class PlainJSON(JSONResponse):
    """JSON in pure ASCII, which can be shown on any terminal."""

    def render(self, content: Any) -> bytes:
        """Encode a document as bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class Refused(AskwellError):
    """A request that the service does not carry out, with the status of the response."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class NoSuchName(Refused):
    """An unknown name: of a mixture, a run, a job or an LM."""

    def __init__(self, message: str) -> None:
        super().__init__(404, message)


class Overloaded(Refused):
    """The queue is full; the request can be retried after some seconds."""

    def __init__(self, message: str, seconds: int) -> None:
        self.seconds = seconds
        super().__init__(429, f"{message}; try again in {seconds} s")


@dataclass(frozen=True)
class Explained:
    """What a client is told about an error."""

    status: int
    sentence: str
    headers: dict[str, str] = field(default_factory=dict)


def explain(error: Exception) -> Explained:
    """Return the status and the sentence for an error; unexpected errors are not shown to clients."""
    if isinstance(error, HTTPException):
        told = "there is no page at this address" if error.detail == "Not Found" else str(error.detail)
        return Explained(error.status_code, told, dict(error.headers or {}))
    if isinstance(error, RequestValidationError):
        problems = error.errors()
        status = 400 if any(problem["type"] == "json_invalid" for problem in problems) else 422
        return Explained(status, "; ".join(map(_problem_of, problems[:5])))
    if isinstance(error, Refused):
        headers = {"retry-after": str(error.seconds)} if isinstance(error, Overloaded) else {}
        return Explained(error.status, str(error), headers)
    if isinstance(error, AskwellError):
        return Explained(422 if isinstance(error, UsageError) else 500, str(error))
    return Explained(500, "this failed; the service's log says why")


def _problem_of(problem: dict[str, Any]) -> str:
    if problem["type"] == "json_invalid":
        return f"the body is not JSON ({problem.get('ctx', {}).get('error', 'it cannot be read')})"
    where = ".".join(map(str, problem["loc"][1:]))  # the first is body, query or path
    return f"{where}: {problem['msg']}" if where else problem["msg"]


# ── the guard ─────────────────────────────────────────────────────────────────────────────────────────────────────

COOKIE = "askwell-token"
_SAFE = ("GET", "HEAD", "OPTIONS")
_OPEN = ("/healthz",)
"""Addresses that need no token: whether the service is up."""
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """Checks requests before the app sees them: the host, the origin, the size and the token. Every response tells the
    browser to load nothing from other hosts.

    `count` gets the route, status and seconds of each request that is passed on. Unknown addresses share a route, so
    that nobody can make the list of routes grow.
    """

    def __init__(self, app: ASGIApp, settings: Settings, count: Callable[[str, int, float], None]) -> None:
        self._app, self._settings, self._count = app, settings, count
        self._too_large = f"a request may have at most {settings.body} bytes"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, seen = time.perf_counter(), 500, 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        async def receiving() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._settings.body:  # it did not say how long it is
                raise HTTPException(413, self._too_large)
            return message

        refusal = self._refusal(HTTPConnection(scope))
        if refusal is not None:
            await refusal(scope, receive, sending)
            return
        try:
            await self._app(scope, receiving, sending)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._count(route, status, time.perf_counter() - began)

    def _refusal(self, request: HTTPConnection) -> Response | None:
        """Return the response to a request that is refused; None if it is allowed."""
        headers, method = request.headers, request.scope["method"]
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._is_ours(host):
            return _refused(421, f"this service does not answer as {host[:80]!r}")
        foreign = origin is not None and origin.partition("://")[2] != host
        if foreign or (method not in _SAFE and headers.get("sec-fetch-site") in ("cross-site", "same-site")):
            return _refused(403, "requests that come from another site are refused")
        if int(headers.get("content-length", "0")) > self._settings.body:
            return _refused(413, self._too_large)
        return self._without_token(request)

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name in self._settings.hosts:
                return True
            if self._settings.token is None:
                return False
            ip_address(name)  # with a token, an IP address is as good as a name: it cannot be rebound
        except ValueError:
            return False
        return True

    def _without_token(self, request: HTTPConnection) -> Response | None:
        token, path = self._settings.token, request.scope["path"]
        if token is None or path in _OPEN:
            return None
        if request.scope["method"] == "GET" and _same(request.query_params.get("token", ""), token):
            rest = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
            there = RedirectResponse(path + (f"?{rest}" if rest else ""), status_code=303)
            there.set_cookie(COOKIE, token, httponly=True, samesite="strict", path="/")
            return there
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        given = bearer.strip() if scheme.lower() == "bearer" else ""
        if _same(given, token) or _same(request.cookies.get(COOKIE, ""), token):
            return None
        problem = "this service needs its token: as Authorization: Bearer TOKEN, or once in a browser as /?token=TOKEN"
        return _refused(401, problem, {"www-authenticate": "Bearer"})


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def _refused(status: int, problem: str, headers: dict[str, str] | None = None) -> PlainJSON:
    return PlainJSON({"error": problem}, status, headers)
