"""The choices and limits of a service, where it listens, and who has access."""

import errno
import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from askwell.errors import BadFile, BadOption, Failure
from askwell.files import cache_folder

_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Settings:
    """Every choice of a service; what it serves is `runs`, or the testbed."""

    runs: Path | None = None
    """A run, a folder of runs or a store; None: the testbed."""
    training: bool = True
    """Whether runs can be started."""
    token: str | None = None
    """The token that every request must carry; None for none."""
    hosts: tuple[str, ...] = _THIS_MACHINE
    """The names under which the service answers; anything else in a Host header is refused."""
    memory: int = 4 * 2**30
    """How many bytes of LMs stay loaded."""
    places: int = 1024
    """The maximum number of x's that can wait to be asked."""
    batch: int = 256
    """The maximum number of x's that are asked at once."""
    kept_answers: int = 20_000
    """The maximum number of x's whose answers are cached."""
    waiting_jobs: int = 8
    """The maximum number of training jobs that can wait."""
    body: int = 4 * 2**20
    """The maximum size of a request in bytes."""
    threads: int | None = None
    """CPU threads of the LM; None: torch's default."""


MOST_XS = 1000
"""The maximum number of x's in one request."""
LONGEST_TEXT = 1000
"""The maximum number of characters in an x, a y or a template."""
LONGEST_NAME = 200
MOST_FACTS = 20_000
MOST_TEMPLATES = 200
MOST_ANSWERS = 100


def settings_at(host: str, token: str | None, runs: Path | None, **choices: Any) -> Settings:
    """Return the settings of a service at a host; access from other machines without a token is refused."""
    try:
        is_local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = host == "localhost"
    if not is_local and not token:
        raise BadOption(
            f"--host {host} gives other machines access, so it needs a token: give --token, or set ASKWELL_TOKEN"
        )
    if token is not None and len(token) < 12:
        raise BadOption("--token: a token that cannot be guessed has at least 12 characters")
    if runs is not None and not runs.is_dir():
        raise BadFile(runs, "this is a file; name a folder of runs" if runs.exists() else "there is no such folder")
    hosts = (*_THIS_MACHINE, host, *(() if is_local else (socket.gethostname().lower(),)))
    return Settings(runs=runs, token=token, hosts=hosts, **choices)


def served_folder(runs: Path | None) -> Path:
    """Return the folder whose runs are served; the testbed's are kept in the cache."""
    return cache_folder() / "served" if runs is None else runs


def folder_of_new_runs(runs: Path | None) -> Path:
    """Return the folder for runs that are started here: that of the other runs, or the one of a store."""
    folder = served_folder(runs)
    return folder / "runs" if (folder / "runs").is_dir() else folder


def listen(host: str, port: int) -> socket.socket:
    """Open a socket that listens on this host and port; port 0 picks a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError, TypeError, ValueError) as error:  # TypeError: a name that no host can have
        reason = getattr(error, "strerror", None) or error
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise Failure(
                f"--port {port} is already in use: choose another, such as --port {_free_port(host)}"
            ) from error
        raise Failure(f"--host {host} --port {port}: nothing can be served there ({reason})") from error


def _free_port(host: str) -> int:
    with listen(host, 0) as free:
        return free.getsockname()[1]


def address_of(listening: socket.socket) -> str:
    """Return the address of a socket, for a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
