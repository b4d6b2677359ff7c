"""How long `askwell ask` takes to start, compared with the least that any program must do to ask the same LM."""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import Times
from report import merge_summary, write_part

from askwell.data.testbed import lm_folder

if TYPE_CHECKING:
    from parts import Setting

FLOOR = """
import sys, torch
from transformers import {model}, {tokenizer}
{tokenizer}.from_pretrained(sys.argv[1])
{model}.from_pretrained(sys.argv[1])
"""
LMS = {"testbed:bert": ("BertForMaskedLM", "BertTokenizer"), "testbed:causal": ("LlamaForCausalLM", "AutoTokenizer")}


def start_of_ask(setting: "Setting") -> None:
    """Time whole processes in turns, with warm caches: the floor, untuned prompts, and a saved mixture."""
    rows: list[dict[str, Any]] = []
    for name in ("testbed:bert",) if setting.quick else LMS:
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            ours = [sys.executable, "-m", "askwell"]
            facts = ["--lm", name, "--facts", "testbed:capital", "--prompts", "testbed:single"]
            _run([*ours, "train", *facts, "--pairs", "64", "--no-controls", "--out", str(run)])
            model, tokenizer = LMS[name]
            floor = FLOOR.format(model=model, tokenizer=tokenizer)
            commands = {
                "floor": [sys.executable, "-c", floor, str(lm_folder(name))],
                "untuned prompts": [*ours, "ask", *facts, "France"],
                "saved mixture": [*ours, "ask", str(run / "mixture"), "France"],
                "run": [*ours, "ask", str(run), "France"],
            }
            times = _in_turns(commands, setting.rounds)
        ratios = {
            command: statistics.median(
                ours / least for ours, least in zip(times[command].seconds, times["floor"].seconds, strict=True)
            )
            for command in list(commands)[1:]
        }
        rows.append(
            {"lm": name}
            | {command: each.as_json() for command, each in times.items()}
            | {f"{command} / floor": ratio for command, ratio in ratios.items()}
        )
    write_part(setting.folder, "start_of_ask", rows)
    figures = {row["lm"]: round(row["saved mixture / floor"], 3) for row in rows}
    merge_summary(setting.folder, {"start_of_ask": max(figures.values()), "start_of_ask_by_lm": figures})


def _in_turns(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, Times]:
    """Return CPU seconds of each process; a first round warms the disk's caches and ours, and does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(1 + rounds):
        for name, command in commands.items():
            before = _cpu_seconds()
            _run(command)
            if number:
                seconds[name].append(_cpu_seconds() - before)
    return {name: Times(tuple(each)) for name, each in seconds.items()}


def _run(command: Sequence[str]) -> None:
    # Compiled modules are kept, as in an installed package; one thread, since idle ones spin.
    settings = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, env=kept | settings, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
