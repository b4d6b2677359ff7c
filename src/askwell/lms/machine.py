"""What the machine has: devices, their precision and memory, and CPU threads."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch

from askwell.errors import BadOption

_CONTAINER = Path("/sys/fs/cgroup")


Precision = Literal["auto", "float32", "bfloat16", "float16", "float64"]


def choose_device(device: str | int | torch.device | None) -> torch.device:
    """Return the device of that name; without a name CUDA, MPS or the CPU, whichever is available first."""
    if device is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # any of these if it is missing
        raise BadOption(
            f"`device` {device} cannot be used here: {str(error).splitlines()[0]}", device="--device"
        ) from None
    if chosen.type == "meta":
        raise BadOption("`device` meta has no data; name cpu, cuda or mps", device="--device")
    return chosen


def choose_dtype(dtype: Precision | torch.dtype, device: torch.device) -> torch.dtype:
    """Return the precision of that name; "auto" is half precision where it is faster."""
    known = {name: getattr(torch, name) for name in get_args(Precision) if name != "auto"}
    if isinstance(dtype, torch.dtype) and dtype in known.values():
        return dtype
    if dtype in known:
        return known[dtype]
    if dtype != "auto":
        raise BadOption(f"dtype {dtype}: an LM runs in one of {', '.join(known)}, or auto")
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    return torch.float32  # on CPUs half precision is slower, and can crash


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


def available_threads() -> int:
    """Return the CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(threads: int | None) -> int:
    """Set how many CPU threads torch uses (default: OMP_NUM_THREADS, or all), and return their number."""
    if threads is not None and threads < 1:
        raise BadOption(f"`threads` {threads}: at least one is needed", threads="--threads")
    if threads is not None or "OMP_NUM_THREADS" not in os.environ:  # torch respects it by itself
        torch.set_num_threads(threads or available_threads())
    return torch.get_num_threads()


@contextmanager
def limited_threads(count: int | None) -> Generator[None]:
    """Let torch use that many CPU threads in the block; None leaves their number as it is."""
    before = torch.get_num_threads()
    try:
        if count is not None:
            torch.set_num_threads(count)
        yield
    finally:
        torch.set_num_threads(before)
