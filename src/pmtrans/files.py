"""Files and folders appear whole or not at all, at whatever moment the process is killed.

Two runs on one folder exclude each other. The kernel drops the lock when its holder dies, however it dies.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pmtrans.errors import RunError, one_line

_LEFTOVER = re.compile(r"\.(?P<name>.+)\.\d+\.(?P<kind>tmp|old)")
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """``write`` fills a temporary file beside ``path``; then it is flushed and renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path, "tmp")
    try:
        mode = _mode_of_new_file(temporary)
        write(temporary)
        temporary.chmod(mode)
        flush(temporary)
        os.replace(temporary, path)
        flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _mode_of_new_file(path: Path) -> int:
    """What the umask and the folder give to a new file: some libraries write theirs for the owner alone (0600)."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
    mode = stat.S_IMODE(path.stat().st_mode)
    path.unlink()
    return mode


def is_missing(path: Path) -> bool:
    """Whether there is no file at ``path``; False where there is one, or a folder, that may not be opened."""
    try:
        os.stat(path)
    except PermissionError:
        return False
    except OSError:
        return True
    return False


def write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda temporary: _write(temporary, text))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogateescape", newline="\n")


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8", errors="surrogateescape"))


def flush(path: Path) -> None:
    """Make sure that a file's content or a folder's entries are on the disk."""
    if os.name == "nt" and path.is_dir():  # Windows opens no folders, and needs no such call
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder filled under a temporary name and renamed when it is complete; an older one is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path, "tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        mode = _mode_of_new_file(temporary / ".mode")
        yield temporary
        for file in temporary.rglob("*"):
            if not file.is_dir():
                file.chmod(mode)
            flush(file)
        flush(temporary)
        _take_place(temporary, path)
        flush(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _take_place(new: Path, path: Path) -> None:
    """``new`` becomes ``path``; what was there is under the temporary name afterwards, or gone."""
    if not path.exists():
        os.replace(new, path)
    elif not _exchange(new, path):
        old = _beside(path, "old")
        shutil.rmtree(old, ignore_errors=True)
        os.replace(path, old)
        os.replace(new, path)  # killed just before: ``settle`` puts the old one back
        shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names at once, so that neither is ever missing; False where the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)


def _beside(path: Path, kind: str) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{kind}")


def is_leftover(name: str) -> bool:
    """Whether a file or folder of this name is one that a killed process did not get to rename or remove."""
    return _LEFTOVER.fullmatch(name) is not None


def settle(folder: Path) -> None:
    """Tidy up after a kill; call it only while nobody else writes here.

    A folder that was being replaced goes back to its place, everything else temporary is removed.
    """
    for entry in list(folder.iterdir()) if folder.is_dir() else []:
        leftover = _LEFTOVER.fullmatch(entry.name)
        if leftover is None:
            continue
        original = entry.with_name(leftover["name"])
        if leftover["kind"] == "old" and not original.exists():
            os.replace(entry, original)
        elif entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


try:
    import fcntl
except ImportError:  # Windows has no flock; msvcrt's lock also ends with the process
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
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
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
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
        return (folder / LOCK).read_bytes().startswith(_SIGNATURE.encode())
    except OSError:
        return False


def _lock(descriptor: int) -> None:
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
