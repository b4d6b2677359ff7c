"""How much memory there is."""

import os
from pathlib import Path

import torch

_GROUP = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> int | None:
    """The bytes that can still be taken on a device, None where that cannot be known."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    known = [size for size in (_of_machine(), _of_group()) if size is not None]
    return min(known, default=None)


def _of_machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:  # not Linux: all memory that there is
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def _of_group() -> int | None:
    """What a container still allows, None where nothing limits it."""
    try:
        limit = (_GROUP / "memory.max").read_text(encoding="ascii").strip()
        return None if limit == "max" else int(limit) - int((_GROUP / "memory.current").read_text(encoding="ascii"))
    except OSError:
        return None
