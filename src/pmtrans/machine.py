"""What this machine offers a process: a device, what that device lacks, its memory, and cores.

The devices are CUDA, Apple's MPS and the CPU. All that is asked of a device by its kind is asked here.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from pmtrans.errors import ConfigError, ModelError, one_line

if TYPE_CHECKING:
    import torch
    from torch import Tensor

CORES = "PMTRANS_CORES"  # the share of one of several processes that an engine started here
MOST_WORKERS = 8
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_MOST_INSTRUCTIONS = "ONEDNN_MAX_CPU_ISA"  # read by oneDNN at its first use
_BF16_PRODUCT = "import torch; torch.ones(64, 64, dtype=torch.bfloat16) @ torch.ones(64, 64, dtype=torch.bfloat16)"
_CPU_FLAGS = Path("/proc/cpuinfo")
_CPU_QUOTAS = (  # of a container: microseconds of all cores together, and the period that they are for
    (Path("/sys/fs/cgroup/cpu.max"),),
    (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")),
)
_CONTROL_GROUPS = (  # (limit, used) of a container; the machine may have more
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


def choose_device(name: str | torch.device | None) -> torch.device:
    """The device of that name, if it can be used here; None: a CUDA GPU, else Apple's MPS, else the CPU.

    Of several processes none takes MPS: they could not exchange tensors on it.
    """
    import torch

    if name is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if has_mps() and not torch.distributed.is_initialized() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = one_line(str(error).splitlines()[0] if str(error) else type(error).__name__, 150)
        raise ModelError(f"Device {one_line(name)!r} cannot be used here: {reason}") from None


def has_mps() -> bool:
    """Whether this is a Mac whose GPU torch can use."""
    import torch

    return torch.backends.mps.is_available()


def fallback_device(device: torch.device) -> torch.device:
    """Where float64, decompositions, gradients of distances and draws from a Beta are computed for a device's tensors.

    On the device itself; for MPS, which has no float64 and, in older versions of torch, none of the others, on the CPU.
    """
    import torch

    return torch.device("cpu") if device.type == "mps" else device


def copy_to(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device; on CUDA without waiting for the copy.

    MPS may read such a copy's memory after it was freed (pytorch issue 189690): there the copy is waited for.
    """
    return tensor.to(device, non_blocking=device.type == "cuda")


def wait_for(device: torch.device) -> None:
    """Until all that was begun on the device is done."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def used_memory(device: torch.device) -> int:
    """Bytes now."""
    import torch

    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    if device.type == "mps":
        return torch.mps.current_allocated_memory()
    return int(psutil.Process().memory_info().rss)


def forget_peak(device: torch.device) -> None:
    """Start measuring again, where the system can; elsewhere the peak is that since the start of the process."""
    import torch

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    if device.type == "mps":
        torch.mps.empty_cache()
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: the highest resident memory falls to the present


def return_freed_memory() -> None:
    """Give the system back what the C library keeps of freed memory, where it can be asked to (glibc)."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def keep_freed_memory() -> None:
    """Let the C library use freed memory again instead of returning it to the system, where it can be told to (glibc).

    By default every large tensor is mapped anew, and the system clears its pages each time: a quarter of the time of a
    training step on a CPU. Blocks above 1 GB are still returned.
    """
    with suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        if not mallopt(_M_MMAP_THRESHOLD, 2**30):
            mallopt(_M_MMAP_THRESHOLD, 2**25)  # the most that older versions allow
        mallopt(_M_TRIM_THRESHOLD, -1)


@cache
def avoid_broken_tiles() -> bool:
    """Keep oneDNN from matrix tiles (AMX) that the CPU announces and cannot execute, as in some virtual machines.

    There a product in bf16 ends the process with an illegal instruction, so one is tried in a process of its own. Call
    it before torch computes anything; True where the tiles are broken. Who has set the variable is left alone.
    """
    if _MOST_INSTRUCTIONS in os.environ:
        return False
    with suppress(OSError):
        if "amx_tile" in _CPU_FLAGS.read_text(encoding="ascii", errors="replace"):
            tried = subprocess.run([sys.executable, "-c", _BF16_PRODUCT], check=False, capture_output=True)
            if tried.returncode == -signal.SIGILL:
                os.environ[_MOST_INSTRUCTIONS] = "AVX512_CORE_BF16"
                return True
    return False


def begin_peak(device: torch.device) -> int:
    """Bytes now, without what is only kept; from here on ``peak_memory`` is that of what follows."""
    return_freed_memory()
    forget_peak(device)
    return used_memory(device)


def peak_memory(device: torch.device) -> int:
    """Bytes at the highest moment since ``forget_peak``."""
    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if device.type == "mps":  # it counts no peak, but keeps what it has taken
        return torch.mps.driver_allocated_memory()
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
    import torch

    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device)
    free = int(psutil.virtual_memory().available)
    if device.type == "mps":  # the machine's memory, of which the GPU may use a part
        return min(torch.mps.recommended_max_memory(), torch.mps.driver_allocated_memory() + free)
    for limit, used in _CONTROL_GROUPS:
        with suppress(OSError, ValueError):  # "max": no limit
            free = min(free, int(limit.read_text()) - int(used.read_text()))
    return used_memory(device) + max(0, free)


def cores() -> int:
    """Those that this process may use, which in a container are fewer than the machine has."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for files in _CPU_QUOTAS:
        with suppress(OSError, ValueError):  # "max": no quota
            quota, period = map(int, " ".join(file.read_text() for file in files).split())
            found = min(found, -(-quota // period)) if quota > 0 else found
    with suppress(ValueError):
        found = min(found, int(os.environ.get(CORES, "")))
    return max(1, found)


def share_of_cores(processes: int) -> int:
    """For each of several processes, one at least."""
    return max(1, cores() // processes)


def loader_workers(device: torch.device) -> int:
    """Loader processes of a training on this device, which shares the cores with the run's other processes here.

    Beside a GPU every core but one is free to decode. On the CPU the training itself uses all of them: a process for
    each four, or one, so that the others do not wait while an image is decoded. On a single core it could only disturb.
    """
    own = cores() // (_count(os.environ.get("LOCAL_WORLD_SIZE", "")) or 1)
    if own <= 1:
        return 0
    return min(MOST_WORKERS, max(1, own // 4) if device.type == "cpu" else own - 1)


def threads_for(processes: int) -> int:
    """Threads of each of several processes: the number in ``OMP_NUM_THREADS``, else an equal share of the cores."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # a list has a number for each nesting
    return _count(first) or share_of_cores(processes)


def _count(text: str) -> int | None:
    """A number of processes or threads; None: it is none that could be meant."""
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,3}", text) else None


def refuse_many(processes: int) -> None:
    """More processes than this machine could ever use would take its memory before the first of them works."""
    most = max(64, 4 * cores())
    if processes > most:
        raise ConfigError(f"{processes} processes: this machine has {cores()} cores, at most {most} are possible.")


def cache_folder() -> Path:
    """Where what is made of data is kept for all runs: ``$PMTRANS_CACHE`` or ``~/.cache/pmtrans``."""
    try:
        return Path(os.environ.get("PMTRANS_CACHE") or Path.home() / ".cache" / "pmtrans")
    except RuntimeError:  # a user without an entry and without HOME, as in some containers
        raise ConfigError("This user has no home folder: set PMTRANS_CACHE to a folder for caches.") from None


def useful_workers(images: int, batch_size: int) -> int:
    """Loader processes: none for a few images, which cost less than a process; else one a spare core, at most 8."""
    return max(1, min(MOST_WORKERS, cores() - 1)) if images >= max(64, 4 * batch_size) else 0
