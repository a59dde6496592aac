"""How much memory a process uses, has used at most, and may have: the GPU's, or the machine's where there is none.

How many loader processes pay.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import torch

_CONTROL_GROUPS = (  # (limit, used) of a container; the machine may have more
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


def used_memory(device: torch.device) -> int:
    """Bytes now."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return int(psutil.Process().memory_info().rss)


def forget_peak(device: torch.device) -> None:
    """Begin to measure anew, where the system can; elsewhere the peak is that since the start of the process."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: the highest resident memory falls to the present


def peak_memory(device: torch.device) -> int:
    """Bytes at the highest moment since ``forget_peak``."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def obtainable_memory(device: torch.device) -> int:
    """Bytes that this process has or could still get."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device)
    free = int(psutil.virtual_memory().available)
    for limit, used in _CONTROL_GROUPS:
        with suppress(OSError, ValueError):  # "max" is no number: no limit
            free = min(free, int(limit.read_text()) - int(used.read_text()))
    return used_memory(device) + max(0, free)


def useful_workers(images: int, batch_size: int) -> int:
    """None for a few images, as a process costs more to start than it saves; else one a spare core, at most 8."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if images < 4 * batch_size or images < 64:
        return 0
    return max(1, min(8, cores - 1))
