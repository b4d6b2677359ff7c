"""Where the service listens, and who is let in."""

import ipaddress
import socket
from pathlib import Path

from askwell.errors import BadFile, BadOption, Failure


def is_local(host: str) -> bool:
    """Whether only this machine reaches a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_reach(host: str, token: str | None) -> None:
    """Refuses to let others in without a token."""
    if not is_local(host) and not token:
        raise BadOption(
            f"--host {host} lets other machines in, so it needs a token: give --token, or set ASKWELL_TOKEN"
        )
    if token is not None and len(token) < 12:
        raise BadOption("--token: a token that cannot be guessed has at least 12 characters")


def names_of(host: str) -> tuple[str, ...]:
    """The names under which a service at this host is reached."""
    return ("127.0.0.1", "localhost", "::1", host, *(() if is_local(host) else (socket.gethostname().lower(),)))


def check_runs(runs: Path | None) -> None:
    """Refuses a path that is no folder."""
    if runs is not None and not runs.is_dir():
        problem = "this is a file; name a folder of runs" if runs.exists() else "there is no such folder"
        raise BadFile(runs, problem)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or error
        raise Failure(f"--host {host} --port {port}: nothing can be served there ({reason})") from error
    return listening


def address_of(listening: socket.socket) -> str:
    """The address of a socket, as a browser takes it."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
