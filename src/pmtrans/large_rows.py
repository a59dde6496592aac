"""Matrices of one row per image, in memory, or on disk where they are large: ten million features take gigabytes.

What lies on disk is an ordinary tensor whose pages the system reads and drops as needed, so chunk by chunk it takes
little memory. Its file has no name any more once it is open: whatever ends the process, the disk space is free again.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from pmtrans.errors import TrainingError, one_line

ON_DISK = 2 * 2**30  # bytes, from which a matrix is on disk


def empty_rows(rows: int, width: int, device: torch.device, folder: Path | None, on_disk: int | None = None) -> Tensor:
    """Float32, not initialised. On disk, in ``folder``, from ``on_disk`` bytes on; memory of a GPU stays there."""
    size = 4 * rows * width
    if folder is None or device.type != "cpu" or size < (ON_DISK if on_disk is None else on_disk):
        return torch.empty(rows, width, device=device)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".rows-", dir=folder)
        try:
            _reserve(handle, size)
            whole = torch.from_file(name, shared=True, size=rows * width, dtype=torch.float32)
        finally:
            os.close(handle)
            os.unlink(name)
    except (OSError, RuntimeError) as error:
        reason = error.strerror.lower() if isinstance(error, OSError) and error.strerror else one_line(error, 150)
        raise TrainingError(
            f"{size / 2**30:.1f} GB for {rows} images are not available in {one_line(folder)!r}: {reason}."
        ) from None
    return whole.view(rows, width)


def rows_beside(known: Tensor, width: int) -> Tensor:
    """As many rows as ``known`` has; on disk, where that is on disk and these are large too."""
    return empty_rows(len(known), width, known.device, folder_of(known))


def folder_of(rows: Tensor) -> Path | None:
    """Where a matrix lies on disk; None: in memory."""
    if rows.device.type != "cpu":
        return None
    name = rows.untyped_storage().filename
    return None if name is None else Path(name).parent


def _reserve(handle: int, size: int) -> None:
    """All of it now: a disk that is full later would kill the process at a write into memory."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
    else:
        os.ftruncate(handle, size)
