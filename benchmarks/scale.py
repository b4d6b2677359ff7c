"""Does work grow with what is used rather than with what is read? CPU seconds and memory of commands on large files.

    python benchmarks/scale.py train ask audit

`train --pairs 64` on a folder with 20,000 and with 1,000,000 train facts (500 dev and 500 test facts each), reading the
larger one alone, `ask --file` with more and more x's, and `audit` of a million lines; each in a process of its own, on
testbed:bert. Results are printed; they were last written down in benchmarks/results/scale.md.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

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


def show(name: str, of: tuple[float, float]) -> None:
    print(f"| {name} | {of[0]:.1f} | {of[1]:.0f} |", flush=True)


def train(folder: Path) -> None:
    for count in (20_000, 1_000_000):
        facts = folder / f"facts-{count}"
        write_facts(facts / "train.jsonl", count)
        write_facts(facts / "dev.jsonl", 500, "dev ")
        write_facts(facts / "test.jsonl", 500, "test ")
        command = ("-m", "askwell", "train", *PROMPT, "--facts", facts, "--pairs", 64, "--out", folder / f"run-{count}")
        show(f"train --pairs 64, {count:,} facts", measured(*command))
    reads = f"from askwell.data.names import read_relation; read_relation({str(facts)!r})"
    show("reading the larger file", measured("-c", reads))


def ask(folder: Path) -> None:
    for count in (1, 20_000, 200_000):
        xs = folder / "xs.txt"
        xs.write_text("".join(f"{XS[number % len(XS)]} {number}\n" for number in range(count)))
        show(f"ask --file, {count:,} x's", measured("-m", "askwell", "ask", *PROMPT, "--file", xs, "--top", 3))


def audit(folder: Path) -> None:
    facts = write_facts(folder / "facts.jsonl", 1_000_000)
    show("audit, 1,000,000 lines", measured("-m", "askwell", "audit", facts))


def main() -> None:
    parts = {"train": train, "ask": ask, "audit": audit}
    print("| what | CPU seconds | most MB |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or parts:
            parts[name](Path(folder))


if __name__ == "__main__":
    main()
