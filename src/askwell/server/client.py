"""A client of the service: asks a mixture on another machine as if it were local. It needs no torch."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx

from askwell.answers.reply import Replies, Reply
from askwell.errors import Failure, UsageError, checked
from askwell.server.settings import MOST_XS

_TRIES = 5
_LONGEST_PAUSE = 60.0


class Client:
    """Asks a service at an address.

    >>> client = askwell.Client("http://127.0.0.1:8000", "p36")
    >>> client.ask("France")
    """

    @checked
    def __init__(
        self, address: str, mixture: str | None = None, *, token: str | None = None, timeout: float = 600.0
    ) -> None:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._http = httpx.Client(
            base_url=address if "://" in address else f"http://{address}", headers=headers, timeout=timeout
        )
        self._mixture = mixture

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    @property
    def mixtures(self) -> list[str]:
        """Return the names of all mixtures that can be asked."""
        return [mixture["name"] for mixture in self._call("GET", "/api/v1/mixtures")["mixtures"]]

    @checked
    def ask(self, x: str, top: int = 10, *, mixture: str | None = None) -> Replies:
        """Return the most probable answers for x, best first, as `Mixture.ask` does."""
        return next(self.ask_many([x], top=top, mixture=mixture))

    @checked
    def ask_many(self, xs: Sequence[str], top: int = 10, *, mixture: str | None = None) -> Iterator[Replies]:
        """Return the same for each x; many x's are sent in several requests."""
        name = mixture or self._mixture or self._only_one()
        for start in range(0, len(xs), MOST_XS):
            body = {"mixture": name, "xs": list(xs[start : start + MOST_XS]), "top": top, "by_prompt": True}
            document = self._call("POST", "/api/v1/ask", json=body)
            for number, answers in enumerate(document["answers"]):
                replies = Replies(Reply(one["y"], one["probability"], tuple(one["by_prompt"])) for one in answers)
                replies.x, replies.unseen = xs[start + number], document.get("unseen", {number: 0.0})[number]
                yield replies

    def _only_one(self) -> str:
        names = self.mixtures
        if len(names) != 1:
            raise UsageError(f"name the mixture to ask; there are {len(names)}: {', '.join(names[:5])}, …")
        return names[0]

    def _call(self, method: str, path: str, **body: Any) -> Any:
        """Return the service's response; if the service is busy, retry the request after the delay that it states."""
        for attempt in range(1, _TRIES + 1):
            try:
                response = self._http.request(method, path, **body)
            except httpx.ConnectError as error:
                raise Failure(f"{self._http.base_url}: no service can be reached there ({error})") from error
            except httpx.TransportError as error:  # a replica may have died with the request
                if attempt == _TRIES:
                    raise Failure(f"{self._http.base_url}: the connection was lost ({error})") from error
                continue
            if attempt == _TRIES or not _is_passing(response):
                break
            pause = response.headers.get("retry-after", "")
            time.sleep(min(_LONGEST_PAUSE, float(pause) if pause.isdecimal() else attempt - 1.0))
        if response.is_success:
            return response.json()
        problem = response.json().get("error", "") if _is_json(response) else ""
        problem = problem or f"{self._http.base_url}: the service answered {response.status_code}"
        raise (UsageError if 400 <= response.status_code < 500 else Failure)(problem)


def _is_passing(response: httpx.Response) -> bool:
    """Tell whether a retry may succeed soon: the service is busy, or a proxy in front of it lost a replica."""
    return response.status_code in (429, 503) or (response.is_server_error and not _is_json(response))


def _is_json(response: httpx.Response) -> bool:
    return "json" in response.headers.get("content-type", "")
