"""A service in a thread of this process, at a free port."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from askwell.server.app import server_of
from askwell.server.service import Service
from askwell.server.settings import Settings, address_of, listen


@dataclass(frozen=True)
class Served:
    address: str
    port: int
    service: Service


@contextmanager
def served(settings: Settings) -> Generator[Served]:
    """The service, until the block ends."""
    listening: socket.socket = listen("127.0.0.1", 0)
    server: uvicorn.Server = server_of(settings)
    app: object = server.config.app
    thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
    thread.start()
    try:
        yield Served(address_of(listening), listening.getsockname()[1], app.state.service)  # ty: ignore[missing-attribute]
    finally:
        server.handle_exit(15, None)
        thread.join(600)
        listening.close()
        assert not thread.is_alive()
