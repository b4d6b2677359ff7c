"""The web app (the API and the pages of one service, behind the guard), its figures, and the server that runs it."""

import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles
from prometheus_client import Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException

from askwell.errors import AskwellError
from askwell.server import api, api_page, ask_page, run_pages, train_pages
from askwell.server.refusals import Guard, PlainJSON
from askwell.server.render import page
from askwell.server.service import Service, service_of
from askwell.server.settings import Settings
from askwell.version import VERSION
from askwell.views.to_html import style_sheet

_ABOUT = "Ask mixtures of soft prompts, see the runs behind them, and train more."
_SECONDS_TO_END = 30
_FOR_MACHINES = ("/api/", "/healthz", "/metrics", "/static/")


def make_app(service: Service, replica: str | None = None) -> FastAPI:
    """Make the app of a service, which is closed when the app ends; `replica` names it among several."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        yield
        app.state.is_closing = lambda: True
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
    app.state.service, app.state.metrics, app.state.is_closing = service, Metrics(service, replica), lambda: False
    for router in (api.router, api.machines, api_page.router, ask_page.router, run_pages.router, train_pages.router):
        app.include_router(router)
    app.add_api_route("/static/document.css", _style_sheet, include_in_schema=False)
    app.mount("/static", StaticFiles(packages=[("askwell.server", "static")]))
    for kind in (AskwellError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _explain)
    app.add_middleware(Guard, settings=service.settings, count=app.state.metrics.count)
    return app


def _style_sheet() -> Response:
    """Return the style sheet of documents."""
    return Response(style_sheet(), media_type="text/css")


async def _explain(request: Request, error: Exception) -> Response:
    """Respond with a sentence about what went wrong; the server logs the traceback of a bug."""
    explained = service_of(request).explain(error)
    if request.url.path.startswith(_FOR_MACHINES):
        return PlainJSON({"error": explained.sentence}, explained.status, explained.headers)
    if request.headers.get("hx-request"):  # shown in place of the answer; browsers log other codes as errors
        return page(request, "problem.html", part="problem", problem=explained.sentence)
    shown = page(request, "problem.html", status=explained.status, problem=explained.sentence)
    shown.headers.update(explained.headers)
    return shown


class Metrics(Collector):
    """Figures for Prometheus: what was asked, how long it took, what is waiting and what is loaded.

    If several replicas share an address, each labels its figures, so that they do not seem to jump between scrapes.
    """

    def __init__(self, service: Service, replica: str | None = None) -> None:
        self._service = service
        self._labels = {} if replica is None else {"replica": replica}
        self._requests = Counter("askwell_requests", "requests by route and status", ["route", "status"], registry=None)
        self._seconds = Histogram("askwell_request_seconds", "how long requests took", ["route"], registry=None)

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield the current figures."""
        for metric in (*self._state(), *self._requests.collect(), *self._seconds.collect()):
            metric.samples = [one._replace(labels={**one.labels, **self._labels}) for one in metric.samples]
            yield metric

    def _state(self) -> Iterator[Metric]:
        service, counts = self._service, self._service.queue.counts
        for name, what, value in (
            ("asked", "x's that went through an LM", counts.asked),
            ("from_cache", "x's whose answers were known", counts.from_cache),
            ("batches", "batches that went through an LM", counts.batches),
            ("refused", "requests refused because the queue was full", counts.refused),
            ("cancelled", "requests whose client disconnected", counts.cancelled),
        ):
            yield CounterMetricFamily(f"askwell_{name}", what, value)
        jobs = service.jobs.all()
        for name, what, value in (
            ("queue_waiting", "x's that are waiting", service.queue.waiting),
            ("queue_places", "x's that can wait", service.settings.places),
            ("loaded_lms", "LMs that are loaded", len(service.loaded.names)),
            ("loaded_lm_bytes", "bytes of the LMs that are loaded", service.loaded.bytes),
            ("unfinished_jobs", "training jobs that are waiting or running", sum(not job.is_over for job in jobs)),
        ):
            yield GaugeMetricFamily(f"askwell_{name}", what, value)

    def text(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        return generate_latest(self)


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
    server = uvicorn.Server(config)
    app.state.is_closing = lambda: server.should_exit  # so that endless streams are closed
    return server
