"""Checks requests before anything else sees them: the host, the origin, the token, the size and the speed. Every
response tells the browser to load nothing from elsewhere.

Another site that a user visits can make their browser send requests here. It cannot choose the Host header (so a name
that was rebound to this address is refused), and it cannot hide its Origin (so its posts are).
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

from askwell.server.refusals import PlainJSON
from askwell.server.settings import Settings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

COOKIE = "askwell-token"
_SAFE = ("GET", "HEAD", "OPTIONS")
_OPEN = ("/healthz",)
"""Needs no token: whether the service is up."""
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
    """An ASGI app around another one."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], settings: Settings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, _with_headers(send))
            return
        await self._app(scope, self._limited(receive), _with_headers(send))

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> Any:
        """The response to a request that is refused; None if it is allowed."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            return _refused(421, f"this service does not answer as {host[:80]!r}")
        origin = headers.get("origin")
        foreign = origin is not None and _place_of(origin) != host
        if foreign or (scope["method"] not in _SAFE and headers.get("sec-fetch-site") in ("cross-site", "same-site")):
            return _refused(403, "requests that come from another site are refused")
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            return _refused(400, "Content-Length is not a number")
        if int(length) > self._settings.body:
            return _refused(413, self._too_large)
        return self._without_token(scope, headers)

    @property
    def _too_large(self) -> str:
        return f"a request may have at most {self._settings.body} bytes"

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._settings.hosts:
            return True
        if self._settings.token is None:
            return False
        try:  # with a token, an IP address is as good as a name: it cannot be rebound
            ip_address(name)
        except ValueError:
            return False
        return True

    def _without_token(self, scope: Scope, headers: dict[str, str]) -> Any:
        token = self._settings.token
        if token is None or scope["path"] in _OPEN:
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(query).get("token")
        if scope["method"] == "GET" and given is not None and _same(given, token):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            there = RedirectResponse(scope["path"] + (f"?{rest}" if rest else ""), status_code=303)
            there.set_cookie(COOKIE, token, httponly=True, samesite="strict", path="/")
            return there
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if (scheme.lower() == "bearer" and _same(bearer.strip(), token)) or _same(_cookie(headers), token):
            return None
        problem = "this service needs its token: as Authorization: Bearer TOKEN, or once in a browser as /?token=TOKEN"
        refused = _refused(401, problem)
        refused.headers["www-authenticate"] = "Bearer"
        return refused

    def _limited(self, receive: Receive) -> Receive:
        """The same messages, with an error if the body is too large or takes too long."""
        seen = 0
        until = asyncio.get_running_loop().time() + self._settings.body_seconds
        whole = False

        async def limited() -> MutableMapping[str, Any]:
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


def _cookie(headers: dict[str, str]) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _refused(status: int, problem: str) -> PlainJSON:
    return PlainJSON({"error": problem}, status)


def _with_headers(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            there = {name.lower() for name, _ in message["headers"]}
            more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in there]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sending
