"""What the environment says of this process; without torch, for the command line."""

from __future__ import annotations

import os


def is_started() -> bool:
    """Whether torchrun, Slurm or ``--processes`` started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_main() -> bool:
    """Whether this is the process that talks."""
    return os.environ.get("RANK", "0") == "0"
