"""Serving an app on a socket until it is told to end."""

import socket

import uvicorn
from fastapi import FastAPI

from askwell.server.app import make_app
from askwell.server.service import Service
from askwell.server.settings import Settings

_SECONDS_TO_END = 30


class _Server(uvicorn.Server):
    """Tells its app when it is to end, so that streams without an end are ended."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: object) -> None:
        """Begins to end."""
        self._app.state.closing = True
        super().handle_exit(sig, frame)  # ty: ignore[invalid-argument-type]


def serve(settings: Settings, listening: socket.socket) -> None:
    """Serves until a signal comes; then finishes what was asked, ends training as Ctrl-C would, and returns."""
    server_of(settings).run(sockets=[listening])


def server_of(settings: Settings) -> uvicorn.Server:
    """The server of a new service."""
    app = make_app(Service(settings))
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SECONDS_TO_END,
        timeout_keep_alive=75,
        limit_concurrency=4096,
        h11_max_incomplete_event_size=64 * 1024,
        ws="none",
    )
    return _Server(config, app)
