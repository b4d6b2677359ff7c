"""What a second thread gains in training: wall-clock seconds of the same steps with one thread and with two, in turns.

Only a quiet machine shows it: where other programs keep the cores busy, two threads wait for each other. What a thread
for each half of a step's facts could gain instead is bounded by the CPU time of the two halves.
"""

import os
import time
from typing import TYPE_CHECKING, Any

import torch
from contenders import our_epoch
from measure import Times, in_turns
from report import merge_summary, write_part
from shapes import PROMPT_WORDS
from shared import facts_like_trex, one_token_mixture

from askwell import load_lm
from askwell.lms.checkpoints import pulled_folder

if TYPE_CHECKING:
    from parts import Setting

WORDS_BEFORE = (0, 40)
"""Tuned words before x: none, and as many as four examples have."""
STEP = 16
"""Facts of a step, as by default with one prompt."""


def threads(setting: "Setting") -> None:
    """An epoch in steps of 16 facts, on SmolLM2 where it was pulled."""
    is_here = (pulled_folder("smollm2") / "config.json").exists()
    name = "smollm2" if is_here and not setting.quick else "testbed:causal"
    lm = load_lm(name, device="cpu")
    words = PROMPT_WORDS.split()
    rows: list[dict[str, Any]] = []
    for before in (WORDS_BEFORE[0],) if setting.quick else WORDS_BEFORE:
        opening = " ".join(words[n % len(words)] for n in range(before))
        mixture = one_token_mixture(lm, [f"{opening} [X] {' '.join(words[:4])} [Y] .".strip()])
        facts = facts_like_trex(mixture, 4 if setting.quick else 64)
        epoch = our_epoch(mixture, facts, STEP)
        with mixture.pairs.keeping(facts.xs):
            seconds = _in_turns(epoch, setting.rounds)
            halved = in_turns({"whole": epoch, "halves": our_epoch(mixture, facts, STEP // 2)}, setting.rounds)
        measured = {f"{count} threads" if count > 1 else "1 thread": Times(tuple(s)) for count, s in seconds.items()}
        ratio = measured["1 thread"].median / measured["2 threads"].median
        case = {"lm": name, "tuned words before x": before, "facts": len(facts)}
        most = 2 * halved["whole"].median / halved["halves"].median
        figures = {key: each.as_json() for key, each in measured.items()}
        rows.append({**case, **figures, "ratio": ratio, "most by halves": most})
    notes = [
        f"Seconds by the clock, median (least–most), of an epoch in steps of {STEP} facts with x's as long as T-REx's; "
        f"the load of the machine at the end was {os.getloadavg()[0]:.1f} (2 are the two threads themselves).",
        "most by halves: what a thread for each half of a step's facts could gain at most, if the two never waited for "
        "each other: twice the CPU time of whole steps over that of two halves, in one thread.",
    ]
    write_part(setting.folder, "threads", "Two threads against one", rows, notes)
    merge_summary(
        setting.folder, {"threads": {str(row["tuned words before x"]): round(row["ratio"], 2) for row in rows}}
    )


def _in_turns(epoch: Any, rounds: int) -> dict[int, list[float]]:
    seconds: dict[int, list[float]] = {1: [], 2: []}
    before = torch.get_num_threads()
    for number in range(1 + rounds):
        for count, each in seconds.items():
            torch.set_num_threads(count)
            started = time.monotonic()
            epoch()
            if number:  # the first round fills caches
                each.append(time.monotonic() - started)
    torch.set_num_threads(before)
    return seconds
