"""The inputs of ``predict`` (folders, images, lists, tables, stdin) as one sequence of image paths, in order."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, overload

from pmtrans.addresses import as_address, as_path
from pmtrans.data.image import is_image_name
from pmtrans.data.reading.layouts import layout_of, located_paths
from pmtrans.data.reading.left_out import LeftOut
from pmtrans.errors import DataError, one_line
from pmtrans.texts import LIST_BYTES


class PathList(Sequence[str]):
    """Paths in one block of bytes: a million of them take little memory, which loader processes share.

    (A list of strings is copied into each process, page by page, as reference counts change.)
    """

    def __init__(self, paths: Iterable[str]) -> None:
        block, ends = bytearray(), array("q", [0])
        for path in paths:
            block += os.fsencode(path)
            ends.append(len(block))
        self._block, self._ends = bytes(block), ends

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> PathList: ...
    def __getitem__(self, index: int | slice) -> str | PathList:
        if isinstance(index, slice):
            return PathList(self[i] for i in range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return os.fsdecode(self._block[self._ends[index] : self._ends[index + 1]])


def gather(
    given: Sequence[str],
    standard_input: IO[bytes],
    root: str | None = None,
    warn: Callable[[str], None] = lambda warning: None,
) -> PathList:
    """Paths from whatever ``data.reading.layouts`` knows (folders sorted), images, and ``-`` for standard input.

    A missing image is kept: its row of the output has the error. No image at all is an error. ``warn`` is told what a
    folder or shard holds besides.
    """
    paths = PathList(path for name in given for path in _paths_of(name, standard_input, root, warn))
    if not len(paths):
        raise DataError(f"{one_line(', '.join(given))}: no image there")
    return paths


def _paths_of(name: str, standard_input: IO[bytes], root: str | None, warn: Callable[[str], None]) -> Iterator[str]:
    path = as_path(name)
    if name == "-":
        yield from _lines(standard_input)
    elif (layout := layout_of(path)) is not None:
        left_out = LeftOut()
        yield from located_paths(layout, path, root, left_out)
        for warning in left_out.warnings(path):
            warn(warning)
    elif path.exists() or is_image_name(name):
        yield as_address(name)
    else:
        raise DataError(f"{one_line(name)}: no such folder or file")


def _lines(stream: IO[bytes]) -> Iterator[str]:
    """One path per line, or NUL-separated (``find -print0``) for names with line breaks."""
    data = stream.read(LIST_BYTES + 1)
    if len(data) > LIST_BYTES:
        raise DataError(f"standard input: more than {LIST_BYTES} bytes")
    separator = b"\0" if b"\0" in data else b"\n"
    for entry in data.split(separator):
        line = entry if separator == b"\0" else entry.rstrip(b"\r")
        if line:
            yield os.fsdecode(line)
