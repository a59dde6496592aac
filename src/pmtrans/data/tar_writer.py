"""Tar files whose bytes depend on names and contents alone: no times, no users, no order of a file system."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
