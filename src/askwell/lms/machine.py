"""What the machine has: CPU threads and memory."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

_CONTAINER = Path("/sys/fs/cgroup")


@contextmanager
def limited_threads(count: int | None) -> Generator[None]:
    """Let torch use that many CPU threads in the block; None leaves their number as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Memory(NamedTuple):
    """Bytes of memory."""

    total: int
    free: int


def memory_of(device: torch.device) -> Memory | None:
    """Return the memory of a device, as far as this process's container may use it; None if it is unknown."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return Memory(total, free)
    if device.type != "cpu" or not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    total = free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
        limit = (_CONTAINER / "memory.max").read_text(encoding="ascii").strip()
        if limit.isdigit():
            used = int((_CONTAINER / "memory.current").read_text(encoding="ascii"))
            total, free = min(total, int(limit)), min(free, int(limit) - used)
    except (OSError, StopIteration):  # not Linux, or not in a container
        pass
    return Memory(total, free)
