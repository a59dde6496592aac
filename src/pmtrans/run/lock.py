"""Two runs on one folder exclude each other. The kernel drops the lock when its holder dies, however it dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pmtrans.errors import RunError, one_line

try:
    import fcntl
except ImportError:  # Windows has no flock; msvcrt's lock also ends with the process
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
_SIGNATURE = "pmtrans process "

_held: set[int] = set()


def _forget() -> None:
    """In a forked child: an inherited descriptor would hold the lock for as long as the child outlives a crash."""
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold ``folder/.lock`` for as long as the block runs; the file says who holds it."""
    owner = os.getpid()
    try:
        descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunError(f"Output folder {one_line(folder)!r} cannot be written: {error.strerror}.") from None
    _held.add(descriptor)
    try:
        try:
            _lock(descriptor)
        except OSError:
            holder = os.read(descriptor, 100).decode(errors="replace").strip().removeprefix(_SIGNATURE)
            raise RunError(
                f"Run folder {one_line(folder)!r} is in use by process {one_line(holder or 'unknown')}: "
                "wait, or choose another --out."
            ) from None
        _sign(descriptor, f"{_SIGNATURE}{owner}\n")
        yield
    finally:
        if os.getpid() == owner:
            _held.discard(descriptor)
            os.close(descriptor)


def _sign(descriptor: int, text: str) -> None:
    with suppress(OSError):  # a full disk: the lock holds without a name in it
        os.ftruncate(descriptor, 0)
        os.write(descriptor, text.encode())


def was_locked(folder: Path) -> bool:
    """Whether the folder was ever taken by ``run_lock``: then what is in it under our names is ours."""
    try:
        return (folder / NAME).read_bytes().startswith(_SIGNATURE.encode())
    except OSError:
        return False


def _lock(descriptor: int) -> None:
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
