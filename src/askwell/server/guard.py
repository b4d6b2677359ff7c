"""Checks requests before anything else sees them: the host, the origin, the token, the size and the speed. Every
response tells the browser to load nothing from other hosts, and is counted.

Another site that a user visits can make their browser send requests here. It cannot choose the Host header (so a name
that was rebound to this address is refused), and it cannot hide its Origin (so its posts are).
"""

import asyncio
import hmac
import time
from collections.abc import Callable
from ipaddress import ip_address
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from askwell.server.refusals import PlainJSON
from askwell.server.settings import Settings

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
    """An ASGI app around another one; `count` gets the route, status and seconds of each request that is passed on.

    Unknown addresses share a route, so that nobody can make the list of routes grow.
    """

    def __init__(self, app: ASGIApp, settings: Settings, count: Callable[[str, int, float], None]) -> None:
        self._app, self._settings, self._count = app, settings, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(HTTPConnection(scope))
        if refusal is not None:
            await refusal(scope, receive, sending)
            return
        try:
            await self._app(scope, self._limited(receive), sending)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._count(route, status, time.perf_counter() - began)

    def _refusal(self, request: HTTPConnection) -> Response | None:
        """Return the response to a request that is refused; None if it is allowed."""
        headers, method = request.headers, request.scope["method"]
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._is_ours(host):
            return _refused(421, f"this service does not answer as {host[:80]!r}")
        foreign = origin is not None and _place_of(origin) != host
        if foreign or (method not in _SAFE and headers.get("sec-fetch-site") in ("cross-site", "same-site")):
            return _refused(403, "requests that come from another site are refused")
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            return _refused(400, "Content-Length is not a number")
        if int(length) > self._settings.body:
            return _refused(413, self._too_large)
        return self._without_token(request)

    @property
    def _too_large(self) -> str:
        return f"a request may have at most {self._settings.body} bytes"

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
        refused = _refused(401, problem)
        refused.headers["www-authenticate"] = "Bearer"
        return refused

    def _limited(self, receive: Receive) -> Receive:
        """Wrap `receive` so that it fails if the body is too large or takes too long."""
        seen = 0
        until = asyncio.get_running_loop().time() + self._settings.body_seconds
        whole = False

        async def limited() -> Message:
            nonlocal seen, whole
            if whole:  # the next message is the client's disconnect
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                problem = f"the request did not arrive within {self._settings.body_seconds:g} s"
                raise HTTPException(408, problem) from None
            seen += len(message.get("body", b""))
            if seen > self._settings.body:
                raise HTTPException(413, self._too_large)
            whole = message["type"] == "http.request" and not message.get("more_body", False)
            return message

        return limited


def _place_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # http://[
        return None


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def _refused(status: int, problem: str) -> PlainJSON:
    return PlainJSON({"error": problem}, status)
