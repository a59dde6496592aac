"""What this machine offers a process: cores, and memory (the GPU's, or the machine's where there is none)."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from pmtrans.errors import ModelError, one_line

if TYPE_CHECKING:
    import torch

_CONTROL_GROUPS = (  # (limit, used) of a container; the machine may have more
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


def used_memory(device: torch.device) -> int:
    """Bytes now."""
    if device.type == "cuda":
        import torch

        return torch.cuda.memory_allocated(device)
    return int(psutil.Process().memory_info().rss)


def choose_device(name: str | torch.device | None) -> torch.device:
    """The device of that name, if it can be used here; None: a CUDA GPU where there is one, else the CPU."""
    import torch

    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = one_line(str(error).splitlines()[0] if str(error) else type(error).__name__, 150)
        raise ModelError(f"Device {one_line(name)!r} cannot be used here: {reason}") from None


def forget_peak(device: torch.device) -> None:
    """Start measuring again, where the system can; elsewhere the peak is that since the start of the process."""
    if device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: the highest resident memory falls to the present


def return_freed_memory() -> None:
    """Give the system back what the C library keeps of freed memory, where it can be asked to (glibc)."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def peak_memory(device: torch.device) -> int:
    """Bytes at the highest moment since ``forget_peak``."""
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def available_memory(device: torch.device) -> int:
    """Bytes that this process has or could still get."""
    if device.type == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device)
    free = int(psutil.virtual_memory().available)
    for limit, used in _CONTROL_GROUPS:
        with suppress(OSError, ValueError):  # "max": no limit
            free = min(free, int(limit.read_text()) - int(used.read_text()))
    return used_memory(device) + max(0, free)


def cores() -> int:
    """Those that this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def useful_workers(images: int, batch_size: int) -> int:
    """Loader processes: none for a few images, which cost less than a process; else one a spare core, at most 8."""
    return max(1, min(8, cores() - 1)) if images >= max(64, 4 * batch_size) else 0
