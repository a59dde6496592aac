"""The one writer: files and folders appear whole or not at all, at whatever moment the process is killed.

No link is followed, and nothing that somebody else prepared is written into. A write that fails says which path.

Two runs on one folder exclude each other. The kernel drops the lock when its holder dies, however it dies.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pmtrans.errors import RunError, one_line
from pmtrans.texts import TextError, read_bytes

_LEFTOVER = re.compile(r"\.(?P<name>.+)\.\d+\.(?P<kind>tmp|old)", re.DOTALL)
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


class WriteError(OSError):
    """A write that failed: ``filename`` is the file or folder that was to appear."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """An error of the system becomes one that names ``path``."""
    try:
        yield
    except WriteError:
        raise
    except SafetensorError as error:
        found = as_os_error(error)
        raise WriteError(found.errno, found.strerror or str(found), str(path)) from None
    except OSError as error:
        raise WriteError(error.errno, error.strerror or str(error), str(path)) from None
    except ValueError as error:  # a NUL in the path
        if "embedded null" not in str(error):
            raise
        raise WriteError(errno.EINVAL, str(error), str(path)) from None


def as_os_error(error: SafetensorError) -> OSError:
    """safetensors reports a full disk as an error of its own, with the system's number in its text."""
    number = re.search(r"os error (\d+)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error))


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """``write`` fills a temporary file beside ``path``; then it is flushed and renamed."""
    temporary = _beside(path, "tmp")
    with writing(path):
        _refuse_special(path)
        _make_parents(path)
        mode = _create(temporary)
        try:
            write(temporary)
            temporary.chmod(mode)
            flush(temporary)
            os.replace(temporary, path)
            flush(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def _refuse_special(path: Path) -> None:
    """A rename would put a file in place of a device, as root for the whole machine, or of a pipe."""
    with suppress(FileNotFoundError, NotADirectoryError):
        mode = os.stat(path).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise OSError(errno.EINVAL, "it is a device or a pipe, not a file", str(path))


def _create(temporary: Path) -> int:
    """An empty file of our own, and its mode; a link, or what another user prepared under this name, is not used.

    The mode is what the umask and the folder give: some libraries write theirs for the owner alone (0600).
    """
    temporary.unlink(missing_ok=True)  # of a killed process that had our number
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS, 0o666)
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    os.close(descriptor)
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


def regular(path: Path) -> Path:
    """The path itself, of a regular file; a pipe, which would block, and a device, which may never end, are refused."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path


def checksum(*files: Path) -> str:
    """Of the bytes of some files, in this order."""
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        with regular(file).open("rb") as content:
            while block := content.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()


def checksum_of(value: Any, *files: Path) -> str:
    """Of a value, as JSON brings it back, and of some files."""
    text = json.dumps(json.loads(json.dumps(value)), sort_keys=True)
    return hashlib.blake2b(f"{text} {checksum(*files)}".encode("ascii"), digest_size=16).hexdigest()


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
    temporary = _beside(path, "tmp")
    with writing(path):
        _make_parents(path)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            mode = _create(temporary / ".mode")
            (temporary / ".mode").unlink()
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

_held: dict[int, Path] = {}  # descriptors of locks, and their folders


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
    refuse_foreign(folder / LOCK)
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | _NO_LINKS, 0o644)
    except OSError as error:
        raise RunError(f"Output folder {one_line(folder)!r} cannot be written: {error.strerror}.") from None
    _held[descriptor] = folder.absolute()
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
            _held.pop(descriptor, None)
            os.close(descriptor)


def _make_parents(path: Path) -> None:
    """The folders above ``path``; one whose lock we hold, and that was removed or renamed, is not made again in part.

    Below such a folder each level is made by itself: it may vanish between the look at its lock and this.
    """
    above = list(path.absolute().parents)
    held = [folder for lock, folder in list(_held.items()) if folder in above and _still_there(lock, folder)]
    if not held:
        path.parent.mkdir(parents=True, exist_ok=True)
        return
    innermost = max(held, key=lambda folder: len(folder.parts))
    for folder in reversed(above[: above.index(innermost)]):
        folder.mkdir(exist_ok=True)


def _still_there(descriptor: int, folder: Path) -> bool:
    """True, or an error that says what happened to the folder of our lock."""
    with suppress(OSError):
        if os.path.samestat(os.fstat(descriptor), os.stat(folder / LOCK)):
            return True
    raise WriteError(errno.ENOENT, "the folder was removed or renamed while it was in use", str(folder))


def refuse_foreign(path: Path) -> None:
    """Refuse a link, a lock that is a second name of another file, and what belongs to another user.

    Root may write what others own: a container often does.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return
    if stat.S_ISLNK(status.st_mode) or (path.name == LOCK and status.st_nlink > 1):
        raise RunError(f"{one_line(path)!r} is a link: pmtrans writes into no linked part; put the real one there.")
    if os.name == "posix" and os.geteuid() not in (0, status.st_uid):
        raise RunError(f"{one_line(path)!r} belongs to another user: choose another --out.")


def _sign(descriptor: int, text: str) -> None:
    with suppress(OSError):  # a full disk: the lock holds without a name in it
        os.ftruncate(descriptor, 0)
        os.write(descriptor, text.encode())


def was_locked(folder: Path) -> bool:
    """Whether the folder was ever taken by ``run_lock``: then what is in it under our names is ours."""
    try:
        return read_bytes(folder / LOCK, 1000).startswith(_SIGNATURE.encode())
    except (OSError, TextError):
        return False


def _lock(descriptor: int) -> None:
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
