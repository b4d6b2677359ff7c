"""An hour of sweeps, asking and serving: do memory and open files stay flat?

    python scripts/soak.py --minutes 60

One process does sweep after sweep and asks files of x's, another serves their runs to clients on this machine (pages,
questions, runs that are trained and cancelled). After each round, the memory and the open files of both are written to
build/soak.jsonl. A pause follows each round, so that the soak takes a third of a core. Its exit code is 1 if memory,
open files or threads have grown from the second quarter to the last. `make test-full` runs it next to the tests.
"""

import argparse
import contextlib
import gc
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

os.environ.setdefault("OMP_NUM_THREADS", "1")

RESULT = Path(__file__).parents[1] / "build" / "soak.jsonl"
XS = 200
SWEEP = """
lms = ["testbed:bert"]
facts = ["testbed:symbol"]
seeds = [{seed}]
engine = "in-process"

[prompts]
single = ["testbed:single"]

[settings]
init = {{ tuned = false }}
soft = {{ pairs = 200 }}
"""
PAGES = ("/", "/runs", "/prompts", "/trust", "/train", "/healthz", "/metrics", "/api/v1/mixtures", "/api/v1/jobs")


def run_command(*arguments: object) -> None:
    """Run a command in this process, with its output thrown away."""
    from askwell.cli.main import main

    words = [str(argument) for argument in arguments]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
        try:
            main(words)
        except SystemExit as stop:
            if stop.code:
                raise RuntimeError(f"askwell {' '.join(words)}: {told.getvalue()}") from None


@contextmanager
def service(runs: Path) -> Generator[tuple[int, str]]:
    """Start `askwell serve` in a process of its own, at a free port; yield its process id and address."""
    command = [sys.executable, "-m", "askwell", "serve", str(runs), "--port", "0", "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(timeout=600)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that another process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def state_of(pid: int | str) -> dict[str, float]:
    """Return memory in MB, open files and threads of a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        "megabytes": int(status["VmRSS"].split()[0]) / 1024,
        "open_files": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "threads": int(status["Threads"]),
    }


def sweep_and_ask(folder: Path, number: int, xs: Path) -> None:
    """Sweep into a new store, and ask what it has tuned about a file of x's."""
    sweep, store = folder / "sweep.toml", folder / "store"
    shutil.rmtree(store, ignore_errors=True)
    sweep.write_text(SWEEP.format(seed=number))
    run_command("sweep", sweep, "--store", store)
    run_command("ask", store, "--file", xs, "--top", 3)
    run_command("runs", store, "--json")


def use_service(address: str, xs: list[str], number: int) -> None:
    """Do what a few people do in a minute: open pages, ask, begin a run and cancel it."""
    with httpx.Client(base_url=address, timeout=600) as client:
        for page in PAGES:
            client.get(page).raise_for_status()
        mixture = client.get("/api/v1/mixtures").json()["mixtures"][0]["name"]
        for start in range(0, len(xs), 20):
            body = {"mixture": mixture, "xs": xs[start : start + 20], "top": 3}
            client.post("/api/v1/ask", json=body).raise_for_status()
        body = {
            "lm": "testbed:bert", "relation": "testbed:symbol", "templates": ["the symbol of [X] is [Y] ."],
            "pairs": 100_000, "seed": number,
        }  # fmt: skip
        made = client.post("/api/v1/jobs", json=body).raise_for_status()
        client.delete(f"/api/v1/jobs/{made.json()['id']}").raise_for_status()


def soak(minutes: float, pause: float, path: Path) -> None:
    """Do rounds for so many minutes, and write a line for each."""
    from askwell.data.testbed import testbed_relation

    facts = testbed_relation("testbed:symbol")
    xs = [fact.x for fact in (*facts.train, *facts.test)]
    xs = (xs * (XS // len(xs) + 1))[:XS]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "xs.txt").write_text("".join(f"{x}\n" for x in xs))
        sweep_and_ask(folder, 0, folder / "xs.txt")
        shutil.copytree(folder / "store", folder / "served")
        with service(folder / "served") as (pid, address):
            begun = time.monotonic()
            number = 0
            while time.monotonic() - begun < 60 * minutes:
                number += 1
                round_began, used = time.monotonic(), time.process_time() + cpu_seconds(pid)
                sweep_and_ask(folder, number, folder / "xs.txt")
                use_service(address, xs, number)
                gc.collect()
                line: dict[str, Any] = {
                    "minute": round((time.monotonic() - begun) / 60, 2), "round": number,
                    "seconds": round(time.monotonic() - round_began, 1),
                    "cpu_seconds": round(time.process_time() + cpu_seconds(pid) - used, 1),
                    "sweep_and_ask": state_of("self"), "serve": state_of(pid),
                }  # fmt: skip
                with path.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                time.sleep(pause * line["cpu_seconds"])


GROWTH = {"megabytes": 30.0, "open_files": 2.0, "threads": 2.0}
"""By how much the last quarter's median may exceed the second quarter's."""


def medians(lines: list[dict[str, Any]]) -> Generator[tuple[str, str, float, float, float]]:
    """Yield each process and figure, with its medians in the second and the last quarter and the most of any round."""
    quarter = max(1, len(lines) // 4)
    parts = lines[quarter : 2 * quarter] or lines, lines[-quarter:]
    for process in ("sweep_and_ask", "serve"):
        for what in GROWTH:
            early, late = (statistics.median(line[process][what] for line in part) for part in parts)
            yield process, what, early, late, max(line[process][what] for line in lines)


def summary(lines: list[dict[str, Any]]) -> str:
    """Describe the second and the last quarter of the soak in Markdown."""
    rows = [
        "# Sweeps, asking and serving for a long time",
        "",
        f"{len(lines)} rounds in {lines[-1]['minute']:.0f} minutes, "
        f"{sum(line['cpu_seconds'] for line in lines):.0f} CPU seconds of both processes. Each "
        f"round: a sweep of two runs on testbed:bert, {XS} x's asked from a file and {XS} of the service, {len(PAGES)} "
        "pages, a training job begun and cancelled. Medians; the first quarter, in which caches fill, is left out.",
        "",
        "| process | what | second quarter | last quarter | most in any round |",
        "|---|---|---|---|---|",
    ]
    for process, what, early, late, most in medians(lines):
        rows.append(f"| {process} | {what} | {early:.0f} | {late:.0f} | {most:.0f} |")
    return "\n".join(rows) + "\n"


def grown(lines: list[dict[str, Any]]) -> list[str]:
    """Return what has grown."""
    return [
        f"{process}: {what} from {early:.0f} to {late:.0f}"
        for process, what, early, late, _ in medians(lines)
        if late > early + GROWTH[what]
    ]


def main() -> None:
    """Soak, write the summary, and exit with 1 if anything has grown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--pause", type=float, default=2, help="seconds of pause for each CPU second of both processes")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    soak(options.minutes, options.pause, options.out)
    lines = [json.loads(line) for line in options.out.read_text().splitlines()]
    options.out.with_suffix(".md").write_text(summary(lines))
    print(summary(lines))
    if problems := grown(lines):
        sys.exit(f"not flat: {'; '.join(problems)}")


if __name__ == "__main__":
    main()
