"""Measure time and memory: CPU time, in turns, so that a noisy machine affects all contenders alike."""

import ctypes
import gc
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import transformers


@dataclass(frozen=True)
class Times:
    """CPU seconds of one contender, one number for each round."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Return the median over rounds."""
        return statistics.median(self.seconds)

    def as_json(self) -> dict[str, Any]:
        """Return median, least and most."""
        return {
            "median_s": round(self.median, 5),
            "least_s": round(min(self.seconds), 5),
            "most_s": round(max(self.seconds), 5),
            "rounds": len(self.seconds),
        }


def in_turns(contenders: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 1) -> dict[str, Times]:
    """Return the CPU seconds of each contender: after rounds to warm up, which do not count, A B C A B C …"""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(warm_up + rounds):
        for name, run in contenders.items():
            started = time.process_time()
            run()
            if number >= warm_up:
                seconds[name].append(time.process_time() - started)
    return {name: Times(tuple(each)) for name, each in seconds.items()}


def peak_bytes(run: Callable[[], object]) -> int:
    """Return the peak memory of a call above what was held before it, by Linux's count of resident pages."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
    before = _status("VmRSS")
    run()
    return max(0, _status("VmHWM") - before)


def machine() -> dict[str, Any]:
    """Return where and when something is measured, and with which versions."""
    models = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": len(models) or None,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def _status(field: str) -> int:
    (line,) = [line for line in _lines("/proc/self/status") if line.startswith(field + ":")]
    return int(line.split()[1]) * 1024


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()
