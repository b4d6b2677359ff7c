"""The web app (the API and the pages of one service, behind the guard) and the server that runs it."""

import logging
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from askwell.errors import AskwellError
from askwell.server import api, ask_page, run_pages, train_pages
from askwell.server.guard import Guard
from askwell.server.prometheus import Metrics
from askwell.server.refusals import PlainJSON, explain
from askwell.server.render import page, static
from askwell.server.service import Service
from askwell.server.settings import Settings
from askwell.version import VERSION

_log = logging.getLogger("askwell.server")
_ABOUT = "Ask mixtures of soft prompts, see the runs behind them, and train more."
_SECONDS_TO_END = 30


def make_app(service: Service, replica: str | None = None) -> FastAPI:
    """Make the app of a service, which is closed when the app ends; `replica` names it among several."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        yield
        app.state.closing = True
        await run_in_threadpool(service.close)

    app = FastAPI(
        title="askwell",
        version=VERSION,
        description=_ABOUT,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        default_response_class=PlainJSON,
    )
    app.state.service, app.state.metrics, app.state.closing = service, Metrics(service, replica), False
    app.include_router(api.router)
    app.include_router(api.machines)
    for pages in (ask_page, run_pages, train_pages):
        app.include_router(pages.router)
    app.add_api_route("/static/{name}", _static, include_in_schema=False)
    for kind in (AskwellError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _tell)
    app.add_middleware(Guard, settings=service.settings, count=app.state.metrics.count)
    return app


async def _tell(request: Request, error: Exception) -> Response:
    """Respond with a sentence about what went wrong."""
    told = explain(error)
    if told.is_bug:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    if request.url.path.startswith(_FOR_MACHINES):
        return PlainJSON({"error": told.sentence}, told.status, told.headers)
    if request.headers.get("hx-request"):  # shown in place of the answer; browsers log other codes as errors
        return page(request, "problem.html", part="problem", problem=told.sentence)
    shown = page(request, "problem.html", status=told.status, problem=told.sentence)
    shown.headers.update(told.headers)
    return shown


_FOR_MACHINES = ("/api/", "/healthz", "/metrics", "/static/")
_STATIC = {
    "htmx.min.js": "text/javascript; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


def _static(name: str) -> Response:
    """Return a file that pages need."""
    if name not in _STATIC:
        raise HTTPException(404, "there is no such file")
    return Response(static(name), media_type=_STATIC[name], headers=_CACHED)


_CACHED = {"cache-control": "max-age=3600"}


class _Server(uvicorn.Server):
    """Tells its app when it shuts down, so that endless streams are closed."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: object) -> None:
        """Begin to shut down."""
        self._app.state.closing = True
        super().handle_exit(sig, frame)  # ty: ignore[invalid-argument-type]


def serve(settings: Settings, listening: socket.socket) -> None:
    """Serve until a signal is received; then finish pending requests and stop training as Ctrl-C would."""
    server_of(settings).run(sockets=[listening])


def server_of(settings: Settings) -> uvicorn.Server:
    """Return the server of a new service."""
    app = make_app(Service(settings))
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_SECONDS_TO_END,
        timeout_keep_alive=75,
        limit_concurrency=4096,
        h11_max_incomplete_event_size=64 * 1024,
        ws="none",
    )
    return _Server(config, app)
