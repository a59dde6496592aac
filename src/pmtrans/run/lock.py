"""Two runs on one folder exclude each other. The kernel drops the lock when its holder dies, however it dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pmtrans.errors import RunError, one_line

try:
    import fcntl
except ImportError:  # Windows has no flock; msvcrt's lock also ends with the process
    fcntl = None  # type: ignore[assignment]


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold ``folder/.lock`` for as long as the block runs; the file says who holds it."""
    path = folder / ".lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            _lock(descriptor)
        except OSError:
            holder = os.read(descriptor, 100).decode(errors="replace").strip()
            raise RunError(
                f"Run folder {one_line(folder)!r} is in use by process {holder or 'unknown'}: "
                "wait, or choose another --out."
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
