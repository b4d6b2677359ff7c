"""What a second thread gains in training: wall-clock seconds of the same steps with one thread and with two, in turns.

This needs a quiet machine: if other programs keep the cores busy, two threads wait for each other. What a thread for
each half of a step's facts could gain instead is bounded by the CPU time of the two halves. The ceiling for any use of
both cores is the throughput of two processes of one thread each, which share nothing but the machine's caches, memory
and clock.
"""

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import torch
from contenders import our_epoch
from measure import Times, in_turns
from report import merge_summary, write_part
from shapes import PROMPT_WORDS
from shared import facts_like_trex, one_token_mixture

from askwell import Mixture, TrainingSpec, load_lm, load_relation, train
from askwell.data.facts import Relation
from askwell.lms.checkpoints import pulled_folder

if TYPE_CHECKING:
    from parts import Setting

WORDS_BEFORE = (0, 40)
"""Tuned words before x: none, and about as many as four examples have."""
STEP = 16
"""Facts in a step, as by default with one prompt."""
RUN_PAIRS = 160
"""The pairs of a whole run."""


def threads(setting: "Setting") -> None:
    """Measure an epoch in steps of 16 facts, on SmolLM2 if it has been pulled."""
    is_here = (pulled_folder("smollm2") / "config.json").exists()
    name = "smollm2" if is_here and not setting.quick else "testbed:causal"
    rows: list[dict[str, Any]] = []
    for before in (WORDS_BEFORE[0],) if setting.quick else WORDS_BEFORE:
        facts = 4 if setting.quick else 64
        with _epochs(name, before, facts) as (epoch, halves):
            seconds = _in_turns(epoch, setting.rounds)
            halved = in_turns({"whole": epoch, "halves": halves}, setting.rounds)
        together = _two_processes(name, before, facts, setting.rounds)
        measured = {f"{count} threads" if count > 1 else "1 thread": Times(tuple(s)) for count, s in seconds.items()}
        ratio = measured["1 thread"].median / measured["2 threads"].median
        case = {"lm": name, "tuned words before x": before, "facts": facts}
        most = 2 * halved["whole"].median / halved["halves"].median
        figures = {key: each.as_json() for key, each in measured.items()}
        rows.append({**case, **figures, "ratio": ratio, "two processes": together, "most by halves": most})
    if not setting.quick:
        rows.append(_whole_run(name, setting.rounds))
    write_part(setting.folder, "threads", rows, load=round(os.getloadavg()[0], 1))
    by_case = {
        part: {str(row["tuned words before x"]): round(row[figure], 2) for row in rows if figure in row}
        for part, figure in (("threads", "ratio"), ("two_processes", "two processes"))
    }
    merge_summary(setting.folder, by_case)


def _whole_run(name: str, rounds: int) -> dict[str, Any]:
    """Measure a whole run of `train` with one thread and with two."""
    lm, relation = load_lm(name, device="cpu"), load_relation("testbed:country_of_city")
    relation = Relation.of(relation.name, relation.train, relation.dev[:60], relation.test[:1])
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for count, each in seconds.items():
            mixture = Mixture(lm, ["[X] is a city in [Y]."], shots=4, answers="one-token", relation=relation)
            started = time.monotonic()
            train(mixture, relation, TrainingSpec(pairs=RUN_PAIRS, batch_facts=STEP, threads=count), progress=False)
            each.append(time.monotonic() - started)
    measured = {f"{count} threads" if count > 1 else "1 thread": Times(tuple(s)) for count, s in seconds.items()}
    ratio = measured["1 thread"].median / measured["2 threads"].median
    figures = {key: each.as_json() for key, each in measured.items()}
    return {"lm": name, "tuned words before x": "whole run", "facts": RUN_PAIRS, **figures, "ratio": ratio}


@contextmanager
def _epochs(name: str, before: int, facts: int) -> Any:
    """Yield an epoch in steps, and one in half steps, with this many tuned words before x."""
    words = PROMPT_WORDS.split()
    opening = " ".join(words[n % len(words)] for n in range(before))
    lm = load_lm(name, device="cpu")
    mixture = one_token_mixture(lm, [f"{opening} [X] {' '.join(words[:4])} [Y] .".strip()])
    encoded = facts_like_trex(mixture, facts)
    with mixture.pairs.keeping(encoded.xs):
        yield our_epoch(mixture, encoded, STEP), our_epoch(mixture, encoded, STEP // 2)


def _in_turns(epoch: Any, rounds: int) -> dict[int, list[float]]:
    seconds: dict[int, list[float]] = {1: [], 2: []}
    before = torch.get_num_threads()
    for number in range(1 + rounds):
        for count, each in seconds.items():
            torch.set_num_threads(count)
            took = _clocked(epoch)
            if number:  # the first round warms up
                each.append(took)
    torch.set_num_threads(before)
    return seconds


def _two_processes(name: str, before: int, facts: int, rounds: int) -> float:
    """Return the throughput of two processes of one thread each, as a multiple of one alone."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = zip(*(context.Pipe() for _ in range(2)), strict=True)
    workers = [context.Process(target=_worker, args=(each, name, before, facts), daemon=True) for each in theirs]
    for worker in workers:
        worker.start()
    for own, their_end in zip(ours, theirs, strict=True):
        their_end.close()  # so that a worker that fails is an error here, and not waited for
        own.recv()  # it is ready: its first epoch was the warm-up
    ratios = [_throughput(ours) / _throughput(ours[:1]) for _ in range(rounds)]
    for each, worker in zip(ours, workers, strict=True):
        each.send(False)
        worker.join()
    return statistics.median(ratios)


def _throughput(workers: tuple[Connection, ...]) -> float:
    """Return how many epochs these workers do in a second, all at once."""
    for each in workers:
        each.send(True)
    return sum(1 / each.recv() for each in workers)


def _worker(parent: Connection, name: str, before: int, facts: int) -> None:
    """Do an epoch in one thread whenever asked to, and send back its wall-clock seconds."""
    torch.set_num_threads(1)
    with _epochs(name, before, facts) as (epoch, _):
        epoch()
        parent.send("ready")
        while parent.recv():
            parent.send(_clocked(epoch))


def _clocked(call: Callable[[], Any]) -> float:
    started = time.monotonic()
    call()
    return time.monotonic() - started
