"""`askwell serve`."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, validators

from askwell.cli.options import Threads
from askwell.cli.terminal import note, note_loading
from askwell.errors import BadOption

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
    engine: Literal["in-process", "ray"] = "in-process",
    address: str | None = None,
    replicas: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=1000))] | None = None,
) -> None:
    """Serve a page and an API over a folder of runs: ask, see why, compare, train.

    The address is the first line on stdout. Without RUNS, the testbed is served. On SIGTERM or Ctrl-C, pending requests
    are finished first; training in progress keeps its best state and can be continued.

    Args:
        runs: A run, a folder of runs, or a sweep's store.
        host: The address to listen on. Any but this machine's own needs a token.
        port: The port; 0 picks a free one.
        token: The token that every request must carry, as Authorization: Bearer TOKEN or, in a browser, once as
            /?token=TOKEN. [env: ASKWELL_TOKEN]
        training: Whether runs can be started from the page and the API.
        memory: How many GiB of LMs stay loaded; those used least recently are unloaded first.
        queue: How many x's may wait; beyond that, clients are told to retry later (429).
        batch: How many x's are asked at once.
        engine: in-process serves from this process. ray serves from replicas on a Ray cluster, which are replaced when
            they die; each takes --threads CPUs, 1 by default, and has its own --memory, --queue and --batch.
        address: Address of the Ray cluster, e.g. auto or HOST:6379; default: one is started on this machine.
        replicas: How many replicas Ray runs; default: 1.
    """
    from askwell.server.settings import address_of, folder_of_new_runs, listen, settings_at

    token = token or os.environ.get("ASKWELL_TOKEN") or None
    if engine != "ray" and (address is not None or replicas is not None):
        raise BadOption(f"--{'address' if address is not None else 'replicas'} needs --engine ray")
    how = {"training": training, "memory": int(memory * 2**30), "places": queue, "batch": batch, "threads": threads}
    settings = settings_at(host, token, runs, **how)

    def tell(there: str) -> None:
        print(there, flush=True)
        first = "" if token is None else ", the first time with ?token=… at the end"
        note(f"open it in a browser{first}; Ctrl-C stops the server")
        if training:
            note(f"runs that are trained there are saved in {folder_of_new_runs(runs)}")

    note_loading("the server")
    if engine == "ray":
        from askwell.server.cluster import serve_on_ray

        serve_on_ray(settings, host, port, replicas=replicas or 1, address=address, tell=tell)
        return
    listening = listen(host, port)
    note(f"it will answer at {address_of(listening)}")
    from askwell.lms.machine import set_threads
    from askwell.server.app import serve as serve_until_told

    settings = replace(settings, threads=set_threads(threads))
    tell(address_of(listening))
    try:
        serve_until_told(settings, listening)
    except KeyboardInterrupt:
        note("stopped")
