"""`askwell serve`."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from askwell.cli.options import Threads
from askwell.cli.terminal import note

Port = Annotated[int, Parameter(validator=validators.Number(gte=0, lte=65535))]
Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]


def serve(
    runs: Path | None = None,
    /,
    *,
    host: str = "127.0.0.1",
    port: Port = 8000,
    token: str | None = None,
    training: bool = True,
    memory: Annotated[float, Parameter(validator=validators.Number(gt=0))] = 4.0,
    queue: Positive = 1024,
    batch: Positive = 256,
    threads: Threads = None,
) -> None:
    """Serve a page and an API over a folder of runs: ask, see why, compare, train.

    The address is the first line on stdout. Without RUNS, the testbed is served. SIGTERM and Ctrl-C let what was asked
    finish; training that is under way keeps its best state and can be continued.

    Args:
        runs: A run, a folder of runs, or a sweep's store.
        host: The address to listen at. Others than this machine's own need a token.
        port: The port; 0 takes a free one.
        token: What every request has to bring, as Authorization: Bearer TOKEN or, in a browser, once as /?token=TOKEN.
            [env: ASKWELL_TOKEN]
        training: Whether runs can be started from the page and the API.
        memory: LMs stay loaded, those used last, within so many GiB.
        queue: How many x's may wait; beyond that, clients are told to come back later (429).
        batch: How many x's are asked at once.
    """
    from askwell.server.settings import Settings, address_of, check_reach, check_runs, listen, names_of

    token = token or os.environ.get("ASKWELL_TOKEN") or None
    check_reach(host, token)
    check_runs(runs)
    from askwell.cli.running import set_threads
    from askwell.server.app import serve as serve_until_told

    used = set_threads(threads)
    settings = Settings(
        runs=runs, training=training, token=token, hosts=names_of(host), memory=int(memory * 2**30), places=queue,
        batch=batch, threads=used,
    )  # fmt: skip
    listening = listen(host, port)
    print(address_of(listening), flush=True)
    note(
        "open it in a browser" + ("" if token is None else ", the first time with ?token=… behind it") + "; Ctrl-C ends"
    )
    try:
        serve_until_told(settings, listening)
    except KeyboardInterrupt:
        note("ended")
