"""The service under load, each part in a process of its own on this machine's loopback, with one thread for the LM.

python benchmarks/serve.py rates [SECONDS [ROUNDS]]    1, 8 and 64 clients against asking one at a time, in turns
python benchmarks/serve.py overload [SECONDS]          many more clients than there are places
python benchmarks/serve.py soak [SECONDS]              memory under steady load

Every x is new, so that nothing comes from the cache (except in the soak, where the cache is meant to fill up). Asks a
second depend on what else the machine does, so the CPU time of the service for an ask is also compared with that of
`Mixture.ask`.
"""

import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parent))

from report import merge_summary, write_part

RESULTS = Path(__file__).parent / "results"
CLIENTS = (1, 8, 64)
RELATION = "testbed:symbol"
MANY = 28
_NAMES = ("France", "Peru", "Norway", "Japan", "Kenya", "Chad", "Cuba", "Italy")
_TICKS = os.sysconf("SC_CLK_TCK")


def xs() -> Iterator[str]:
    """Yield x's without end, all different."""
    return (f"{name} {number}" for number in itertools.count() for name in _NAMES)


# ── the service ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Service:
    address: str
    pid: int

    @property
    def cpu_seconds(self) -> float:
        """Return the CPU time of all its threads so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def megabytes(self) -> float:
        """Return the memory that it holds, in MB."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


@contextmanager
def service(runs: Path, *options: str) -> Generator[Service]:
    """Run `askwell serve` over a folder of runs until the block ends."""
    command = [sys.executable, "-m", "askwell", "serve", str(runs), "--port", "0", "--threads", "1", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        if process.stdout is None:
            raise RuntimeError("the service has no output")
        yield Service(process.stdout.readline().strip(), process.pid)
    finally:
        process.terminate()
        process.wait(60)


def make_runs(folder: Path) -> None:
    """Make untuned runs named `one` and `many`: the same relation with one prompt and with 28."""
    from askwell.data.testbed import testbed_prompts, testbed_relation
    from askwell.lms.load import load_lm
    from askwell.runs.build_spec import build_run_spec
    from askwell.runs.run import run
    from askwell.specs.mixture_spec import MixtureSpec

    lm, relation = load_lm("testbed:bert"), testbed_relation(RELATION)
    every = [*testbed_prompts("single", RELATION), *testbed_prompts("paraphrased", RELATION)]
    every += testbed_prompts("mined", RELATION)
    distinct = list({template.text: template for template in every}.values())
    some = list(itertools.islice(itertools.cycle(distinct), MANY))
    for name, templates in (("one", distinct[:1]), ("many", some)):
        spec = build_run_spec(lm, relation, templates, mixture=MixtureSpec(), training=None, prompts=name, threads=1)
        run(spec, lm, relation, folder / name, untuned=False)


# ── clients ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Heard:
    """The responses that clients got."""

    took: list[float] = field(default_factory=list)
    """Seconds of each ask that was answered."""
    refused: list[float] = field(default_factory=list)
    """Seconds until each refusal (429)."""
    pauses: set[int] = field(default_factory=set)
    """The values of Retry-After in refusals."""
    failed: int = 0
    seconds: float = 0.0

    def percentile(self, part: float) -> float:
        """Return the milliseconds within which this part of the asks was answered."""
        return 1e3 * sorted(self.took)[min(len(self.took) - 1, int(part * len(self.took)))]


async def one_client(address: str, mixture: str, questions: Iterator[str], until: float, heard: Heard) -> None:
    """Ask on one connection, the next x as soon as the last is answered; after a refusal, wait a little."""
    host, port = address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    while time.perf_counter() < until:
        body = json.dumps({"mixture": mixture, "xs": [next(questions)]}).encode()
        head = f"POST /api/v1/ask HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        began = time.perf_counter()
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        fields = dict(line.split(b": ", 1) for line in answer.split(b"\r\n")[1:] if line)
        await reader.readexactly(int(fields[b"content-length"]))
        took, status = time.perf_counter() - began, int(answer.split(b" ", 2)[1])
        if status == 200:
            heard.took.append(took)
        elif status == 429:
            heard.refused.append(took)
            heard.pauses.add(int(fields[b"retry-after"]))
            await asyncio.sleep(0.1)
        else:
            heard.failed += 1
    writer.close()


async def _clients(address: str, mixture: str, count: int, seconds: float, questions: Iterator[str]) -> Heard:
    heard, began = Heard(), time.perf_counter()
    asking = (one_client(address, mixture, questions, began + seconds, heard) for _ in range(count))
    await asyncio.gather(*asking)
    heard.seconds = time.perf_counter() - began
    return heard


def clients(at: Service, mixture: str, count: int, seconds: float, questions: Iterator[str]) -> Heard:
    """Return the responses that this many clients get who ask at the same time."""
    return asyncio.run(_clients(at.address, mixture, count, seconds, questions))


# ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def rates(seconds: float, rounds: int) -> None:
    """Measure 1, 8 and 64 clients, and `Mixture.ask` called again and again in this process, in turns."""
    from askwell.lms.load import load_lm
    from askwell.server.catalogue import Catalogue

    rows: list[dict[str, Any]] = []
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        make_runs(Path(folder))
        catalogue, lm = Catalogue(Path(folder)), load_lm("testbed:bert")
        for mixture, prompts in (("one", 1), ("many", MANY)):
            alone = catalogue.find(mixture).askable.build(lm).requires_grad_(False)
            questions = xs()
            per_ask: dict[int, list[float]] = {count: [] for count in (0, *CLIENTS)}
            asks: dict[int, list[float]] = {count: [] for count in (0, *CLIENTS)}
            heard: dict[int, Heard] = {count: Heard() for count in CLIENTS}
            with service(Path(folder)) as at:
                clients(at, mixture, 8, 1.0, questions)  # the LM is loaded
                alone.ask("France")
                for _ in range(rounds):
                    began, cpu, asked = time.perf_counter(), time.process_time(), 0
                    while time.perf_counter() - began < seconds:
                        alone.ask(next(questions))
                        asked += 1
                    per_ask[0].append((time.process_time() - cpu) / asked)
                    asks[0].append(asked / (time.perf_counter() - began))
                    for count in CLIENTS:
                        before = at.cpu_seconds
                        found = clients(at, mixture, count, seconds, questions)
                        per_ask[count].append((at.cpu_seconds - before) / len(found.took))
                        asks[count].append(len(found.took) / found.seconds)
                        heard[count].took += found.took
                        heard[count].failed += found.failed + len(found.refused)
            for count in (0, *CLIENTS):
                cpu_ratio = statistics.median(a / b for a, b in zip(per_ask[0], per_ask[count], strict=True))
                ratio = statistics.median(b / a for a, b in zip(asks[0], asks[count], strict=True))
                rows.append(
                    {
                        "prompts": prompts,
                        "clients": count or "Mixture.ask, one at a time",
                        "asks a second": round(statistics.median(asks[count])),
                        "against one at a time": round(ratio, 2),
                        "CPU ms an ask": round(1e3 * statistics.median(per_ask[count]), 3),
                        "CPU against one at a time": round(cpu_ratio, 2),
                        "p50 ms": round(heard[count].percentile(0.5), 1) if count else None,
                        "p99 ms": round(heard[count].percentile(0.99), 1) if count else None,
                        "failures": heard[count].failed if count else None,
                    }
                )
                if count:
                    figures[f"{prompts}_prompts_{count}_clients"] = {
                        "against_one_at_a_time": round(ratio, 2), "cpu": round(cpu_ratio, 2),
                        "failures": heard[count].failed,
                    }  # fmt: skip
    write_part(RESULTS, "serve_rates", rows, rounds=rounds, seconds=seconds, load=round(os.getloadavg()[1], 1))
    _merge({"rates": figures})


def overload(seconds: float) -> None:
    """Measure 8 clients, then 256, for 32 places: some are served, the others are told when to come back."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        make_runs(Path(folder))
        with service(Path(folder), "--queue", "32", "--batch", "16") as at:
            questions = xs()
            clients(at, "one", 8, 1.0, questions)
            for count in (8, 256):
                found = clients(at, "one", count, seconds, questions)
                rows.append(
                    {
                        "clients": count,
                        "answered a second": round(len(found.took) / found.seconds),
                        "p50 ms": round(found.percentile(0.5), 1),
                        "p99 ms": round(found.percentile(0.99), 1),
                        "refused (429)": len(found.refused),
                        "p50 ms of refusals": round(1e3 * statistics.median(found.refused), 1)
                        if found.refused
                        else None,
                        "Retry-After, s": ", ".join(map(str, sorted(found.pauses))),
                        "failures": found.failed,
                    }
                )
    write_part(RESULTS, "serve_overload", rows, seconds=seconds, load=round(os.getloadavg()[1], 1))
    _merge({"overload": {"failures": sum(row["failures"] for row in rows), "refused": rows[-1]["refused (429)"]}})


def soak(seconds: float) -> None:
    """Measure memory under 8 clients that ask new x's without a pause; the cache is full after the first part."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        make_runs(Path(folder))
        with service(Path(folder)) as at:
            questions = xs()
            failed = asked = 0
            began = time.perf_counter()
            clients(at, "one", 64, min(60.0, seconds / 4), questions)
            while time.perf_counter() - began < seconds:
                found = clients(at, "one", 8, min(30.0, seconds / 10), questions)
                failed, asked = failed + found.failed + len(found.refused), asked + len(found.took)
                rows.append(
                    {
                        "after s": round(time.perf_counter() - began),
                        "MB": round(at.megabytes, 1),
                        "asks": asked,
                        "p50 ms": round(found.percentile(0.5), 1),
                        "p99 ms": round(found.percentile(0.99), 1),
                        "failures": failed,
                    }
                )
    half = [row["MB"] for row in rows[len(rows) // 2 :]]
    growth = rows[-1]["MB"] - rows[len(rows) // 2]["MB"]
    write_part(RESULTS, "serve_soak", rows, seconds=seconds, load=round(os.getloadavg()[1], 1))
    _merge({"soak": {"growth_mb": round(growth, 1), "most_mb": max(half), "seconds": seconds, "failures": failed}})


def _merge(figures: dict[str, Any]) -> None:
    path = RESULTS / "summary.json"
    kept = json.loads(path.read_text(encoding="utf-8")).get("serve", {}) if path.exists() else {}
    merge_summary(RESULTS, {"serve": {**kept, **figures}})


def main() -> None:
    part, *numbers = sys.argv[1:] or ["rates"]
    if part == "rates":
        rates(float(numbers[0]) if numbers else 5.0, int(numbers[1]) if len(numbers) > 1 else 3)
    elif part == "overload":
        overload(float(numbers[0]) if numbers else 10.0)
    elif part == "soak":
        soak(float(numbers[0]) if numbers else 600.0)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
