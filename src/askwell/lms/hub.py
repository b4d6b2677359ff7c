"""Whether the hub can be reached: checked once, with a short timeout, since its client would try for half a minute."""

import time
from typing import Any

import httpx
from huggingface_hub import constants

_SECONDS_TO_ANSWER = 4.0
_SECONDS_TO_REMEMBER = 60.0
_found: tuple[float, str, bool] | None = None


def answers() -> bool:
    """Whether the hub answers; the result is reused for a minute."""
    global _found  # one network, one answer for the whole process
    now = time.monotonic()
    if _found is None or _found[1] != constants.ENDPOINT or now - _found[0] > _SECONDS_TO_REMEMBER:
        try:
            httpx.head(constants.ENDPOINT, timeout=_SECONDS_TO_ANSWER)
            is_there = True
        except httpx.HTTPError:  # no such host, no route, no answer in time, no certificate
            is_there = False
        _found = (now, constants.ENDPOINT, is_there)
    return _found[2]


def hub_options() -> dict[str, Any]:
    """Options for its client: to use only the cache if the hub cannot be reached."""
    return {} if constants.is_offline_mode() or answers() else {"local_files_only": True}
