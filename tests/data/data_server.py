"""A small HTTP server that misbehaves as it is told to, file by file and request by request."""

import contextlib
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Well:
    """Answers as it should, with the rest of the file where a rest is asked for."""


@dataclass(frozen=True)
class Truncates:
    """Promises all that was asked for, and hangs up after some bytes."""

    after: int


@dataclass(frozen=True)
class Stalls:
    """Promises all that was asked for, and falls silent after some bytes, for as long as the server is there."""

    after: int


@dataclass(frozen=True)
class Corrupts:
    """Sends a file of the right length with one byte changed."""


@dataclass(frozen=True)
class Appends:
    """Sends more than the file."""


@dataclass(frozen=True)
class Redirects:
    """Sends elsewhere, where the file is."""


@dataclass(frozen=True)
class Refuses:
    """Answers with a status."""

    status: int
    retry_after: str | None = None


Behaviour = Well | Truncates | Stalls | Corrupts | Appends | Redirects | Refuses


@dataclass
class DataServer:
    """Serves files by path on 127.0.0.1."""

    files: dict[str, bytes]
    plan: dict[str, list[Behaviour]] = field(default_factory=lambda: defaultdict(list))
    """What to do at the next requests for a path; when it is used up, the server behaves well."""
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """Paths that were asked for, each with its Range."""

    def __enter__(self) -> "DataServer":
        self.leave = threading.Event()
        self.open = threading.Event()
        """While it is not set, no request is answered."""
        self.open.set()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.leave.set()
        self.open.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def ranges(self, path: str) -> list[str | None]:
        """The ranges that were asked for, request by request."""
        return [asked for requested, asked in self.requests if requested == path]

    def _next(self, path: str, asked: str | None) -> Behaviour:
        with self._lock:
            self.requests.append((path, asked))
            return self.plan[path].pop(0) if self.plan[path] else Well()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, asked = self.path.removeprefix("/moved"), self.headers.get("Range")
                behaviour = server._next(self.path, asked)
                server.open.wait()
                data = server.files.get(path)
                if data is None:
                    behaviour = Refuses(404)
                with contextlib.suppress(ConnectionError):  # the client gave up first, as it should
                    self._answer(behaviour, data or b"", path, asked)

            def _answer(self, behaviour: Behaviour, data: bytes, path: str, asked: str | None) -> None:
                start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
                match behaviour:
                    case Refuses(status, retry_after):
                        self.send_response(status)
                        if retry_after:
                            self.send_header("Retry-After", retry_after)
                        self.send_header("Content-Length", "0")
                        self.end_headers()
                    case Redirects():
                        self.send_response(302)
                        self.send_header("Location", f"/moved{path}")
                        self.send_header("Content-Length", "0")
                        self.end_headers()
                    case Appends():
                        self._send(200, data + b"more")
                    case Corrupts():
                        self._send_rest(data[:-1] + bytes([data[-1] ^ 1]), start)
                    case Truncates(after):
                        self._send_rest(data, start, after)
                    case Stalls(after):
                        self._send_rest(data, start, after)
                        server.leave.wait()
                    case Well():
                        self._send_rest(data, start)

            def _send_rest(self, data: bytes, start: int, most: int | None = None) -> None:
                if start >= len(data):
                    self._send(416, b"")
                elif start:
                    place = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
                    self._send(206, data[start:], place, most)
                else:
                    self._send(200, data, {}, most)

            def _send(
                self, status: int, body: bytes, headers: dict[str, str] | None = None, most: int | None = None
            ) -> None:
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body if most is None else body[:most])
                self.wfile.flush()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        return Handler
