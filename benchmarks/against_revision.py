"""Measure this work tree against that of another revision: python benchmarks/against_revision.py TREE.

Each tree is measured in a process of its own, by its own `our_epoch` and `our_evaluation` on the same LMs and facts.
The two processes take turns, so that a busy machine slows both down alike; only the ratio of CPU times counts.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
LMS = ("small", "testbed:bert", "testbed:roberta", "testbed:causal", "base")


def cases(lms: list[str]) -> dict[str, Callable[[], object]]:
    """Return what is measured, by name: an epoch of EM at layer 0 and deep, and an evaluation, for each LM."""
    import torch
    from contenders import our_epoch, our_evaluation
    from shapes import facts_of, lm_of, mixture_of

    torch.set_num_threads(1)
    torch.manual_seed(0)
    made: dict[str, Callable[[], object]] = {}
    for name in lms:
        lm, facts = lm_of(name), 4 if name == "base" else 32
        for tuned, deep in (("layer 0", False), ("deep", True)):
            mixture = mixture_of(lm, 8, deep=deep)
            made[f"{name}, epoch, {tuned}"] = our_epoch(mixture, facts_of(mixture, facts), batch_facts=16)
        mixture = mixture_of(lm, 28, deep=False)
        made[f"{name}, evaluation"] = our_evaluation(mixture, facts_of(mixture, facts))
    return made


def work(lms: list[str]) -> None:
    """Read names of cases from stdin, run each, and write its CPU seconds to stdout."""
    made = cases(lms)
    print(json.dumps(list(made)), flush=True)
    for line in sys.stdin:
        started = time.process_time()
        made[line.rstrip("\n")]()
        print(time.process_time() - started, flush=True)


class Worker:
    """A process that measures one tree."""

    def __init__(self, tree: Path, lms: list[str]) -> None:
        path = os.pathsep.join(str(tree / part) for part in ("src", "benchmarks"))
        command = [sys.executable, str(HERE / "against_revision.py"), str(tree), "--work", "--lms", *lms]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
        )
        self.cases: list[str] = json.loads(self._read())

    def seconds(self, case: str) -> float:
        """Return the CPU seconds of one run of the case."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{case}\n")
        self.process.stdin.flush()
        return float(self._read())

    def _read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"a worker ended with code {self.process.wait()}")
        return line


def main() -> None:
    """Print, for each case, the median CPU seconds of both trees and the ratio of this one to the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path, help="a work tree of the other revision (git worktree add)")
    parser.add_argument("--lms", nargs="+", default=list(LMS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        sys.path.remove(str(HERE))  # the other tree's benchmarks, not those next to this file
        work(options.lms)
        return
    other, this = Worker(options.tree.resolve(), options.lms), Worker(HERE.parent.resolve(), options.lms)
    print("| case | other, s | this, s | this / other | range over rounds |\n|---|---:|---:|---:|---|")
    for case in this.cases:
        for worker in (other, this):
            worker.seconds(case)  # to warm up
        rounds = [(other.seconds(case), this.seconds(case)) for _ in range(options.rounds)]
        then, now = (statistics.median(times) for times in zip(*rounds, strict=True))
        ratios = sorted(new / old for old, new in rounds)
        middle = statistics.median(ratios)
        print(f"| {case} | {then:.3f} | {now:.3f} | {middle:.3f} | {ratios[0]:.2f}–{ratios[-1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
