"""Tar files whose bytes depend on names and contents alone: no times, no users, no order of a file system."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STEM = 200  # bytes, of 255 that a file system allows


def file_stem(name: str) -> str:
    """The begin of a name, short enough for the number, suffix and temporary name of a file that is called after it."""
    return name if len(os.fsencode(name)) <= _STEM else os.fsencode(name)[:_STEM].decode("utf-8", "ignore")


@contextmanager
def tar_file(path: Path) -> Iterator[tarfile.TarFile]:
    """An uncompressed tar that is written to ``path``; names may be any bytes, of any length."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape") as tar:
        yield tar


def add_file(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file of mode 644 and time 0."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
