"""How many asks a second the service answers with 1, 8 and 64 clients, against asking one at a time in the same run.

python benchmarks/serve.py [SECONDS [MIXTURE]] prints a table for docs/serving.md. The service is its own process, every
x is another one, so that nothing comes from the cache, and all use one thread.
"""

import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
_NAMES = ("France", "Peru", "Norway", "Japan", "Kenya", "Chad", "Cuba", "Italy")


def xs():
    """x's without end, each another one."""
    return (f"{name} {number}" for number in itertools.count() for name in _NAMES)


def one_at_a_time(mixture: str, seconds: float) -> float:
    """Asks a second of `Mixture.ask`, called again and again in this process."""
    from askwell.lms.load import load_lm
    from askwell.server.catalogue import Catalogue

    catalogue = Catalogue(None)
    askable = catalogue.askable(catalogue.find(mixture))
    built = askable.build(load_lm(askable.lm.name))
    built.ask("France")
    began = time.perf_counter()
    for asked, x in enumerate(xs(), start=1):
        built.ask(x)
        if time.perf_counter() - began >= seconds:
            return asked / (time.perf_counter() - began)
    raise RuntimeError("there is always another x")


async def client(address: str, mixture: str, questions, until: float, took: list[float], failed: list[int]) -> None:
    """One client on one connection, which asks the next x as soon as it has its answer."""
    host, port = address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    while time.perf_counter() < until:
        body = json.dumps({"mixture": mixture, "xs": [next(questions)]}).encode()
        head = f"POST /api/v1/ask HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        began = time.perf_counter()
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        took.append(time.perf_counter() - began)
        if b" 200 " not in answer.split(b"\r\n", 1)[0]:
            failed.append(1)
    writer.close()


async def clients(address: str, mixture: str, count: int, seconds: float) -> tuple[float, list[float], int]:
    """Asks a second with so many clients, how long each took, and how many failed."""
    questions = (f"{x} of {count}" for x in xs())
    took: list[float] = []
    failed: list[int] = []
    began = time.perf_counter()
    await asyncio.gather(*(client(address, mixture, questions, began + seconds, took, failed) for _ in range(count)))
    return len(took) / (time.perf_counter() - began), took, len(failed)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    mixture = sys.argv[2] if len(sys.argv) > 2 else "testbed:symbol/bert"
    command = [sys.executable, "-m", "askwell", "serve", "--port", "0", "--threads", "1"]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        if service.stdout is None:
            raise RuntimeError("the service has no output")
        address = service.stdout.readline().strip()
        asyncio.run(clients(address, mixture, 1, 1.0))  # the LM is loaded
        alone = one_at_a_time(mixture, seconds)
        print(f"| {mixture} | asks a second | against one at a time | p50, ms | p99, ms | failures |")
        print("|---|---:|---:|---:|---:|---:|")
        print(f"| `Mixture.ask`, one at a time | {alone:.0f} | 1.0 | {1000 / alone:.1f} | | |")
        for count in (1, 8, 64):
            rate, took, failed = asyncio.run(clients(address, mixture, count, seconds))
            p50, p99 = statistics.median(took), sorted(took)[int(0.99 * len(took))]
            name = f"{count} client" + ("s" if count > 1 else "")
            print(f"| {name} | {rate:.0f} | {rate / alone:.1f} | {1e3 * p50:.1f} | {1e3 * p99:.1f} | {failed} |")
    finally:
        service.terminate()
        service.wait(60)


if __name__ == "__main__":
    main()
