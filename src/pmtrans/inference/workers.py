"""How many loader processes pay."""

from __future__ import annotations

import os


def useful_workers(images: int, batch_size: int) -> int:
    """None for a few images, as a process costs more to start than it saves; else one a spare core, at most 8."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if images < 4 * batch_size or images < 64:
        return 0
    return max(1, min(8, cores - 1))
