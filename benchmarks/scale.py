"""CPU seconds and memory of commands on large files: does work grow with what is used rather than with what is read?

    python benchmarks/scale.py train ask audit

`train --pairs 64` on a folder with 20,000 and with 1,000,000 train facts (500 dev and 500 test facts each), reading the
larger one alone, `ask --file` with more and more x's, and `audit` of a million lines, each in a process of its own, on
testbed:bert. With all three parts, results/scale.json is written.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from report import write_part

XS = ("Paris", "Rome", "Lima", "Oslo", "Berlin", "Vienna", "Cairo", "Quito")
YS = ("France", "Italy", "Peru", "Norway", "Germany", "Austria", "Egypt", "Spain")
PROMPT = ("--lm", "testbed:bert", "--prompts", "[X] is in [Y] .", "--threads", "1")


def write_facts(path: Path, count: int, first: str = "") -> Path:
    chance = random.Random(0)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for number in range(count):
            fact = {"x": f"{first}{chance.choice(XS)} {number}", "y": chance.choice(YS)}
            file.write(json.dumps(fact) + "\n")
    return path


def measured(*command: object) -> tuple[float, float]:
    """CPU seconds and the most megabytes of a command in a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    words = [sys.executable, *map(str, command)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def train(folder: Path) -> Iterator[tuple[str, tuple[float, float]]]:
    for count in (20_000, 1_000_000):
        facts = folder / f"facts-{count}"
        write_facts(facts / "train.jsonl", count)
        write_facts(facts / "dev.jsonl", 500, "dev ")
        write_facts(facts / "test.jsonl", 500, "test ")
        command = ("-m", "askwell", "train", *PROMPT, "--facts", facts, "--pairs", 64, "--out", folder / f"run-{count}")
        yield f"train --pairs 64, {count:,} facts", measured(*command)
    reads = f"from askwell.data.names import load_relation; load_relation({str(facts)!r})"
    yield "reading the larger file", measured("-c", reads)


def ask(folder: Path) -> Iterator[tuple[str, tuple[float, float]]]:
    for count in (1, 20_000, 200_000):
        xs = folder / "xs.txt"
        xs.write_text("".join(f"{XS[number % len(XS)]} {number}\n" for number in range(count)))
        yield f"ask --file, {count:,} x's", measured("-m", "askwell", "ask", *PROMPT, "--file", xs, "--top", 3)


def audit(folder: Path) -> Iterator[tuple[str, tuple[float, float]]]:
    facts = write_facts(folder / "facts.jsonl", 1_000_000)
    yield "audit, 1,000,000 lines", measured("-m", "askwell", "audit", facts)


def main() -> None:
    parts = {"train": train, "ask": ask, "audit": audit}
    chosen = sys.argv[1:] or list(parts)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for part in chosen:
            for what, (seconds, megabytes) in parts[part](Path(folder)):
                rows.append({"what": what, "CPU seconds": round(seconds, 1), "most MB": round(megabytes)})
                print(rows[-1], flush=True)
    if set(chosen) == set(parts):
        write_part(Path(__file__).parent / "results", "scale", rows)


if __name__ == "__main__":
    main()
