"""Read folders: all images below a folder, labelled by class folders."""

from __future__ import annotations

import heapq
import os
from pathlib import Path

from pmtrans.data.image import is_image_name
from pmtrans.data.reading.left_out import LeftOut
from pmtrans.data.reading.listing import Listing, Row
from pmtrans.errors import DataError, one_line

# Folders that file managers and servers create: copies and thumbnails, not training images.
_LEFTOVERS = frozenset({"__MACOSX", "@eaDir", "$RECYCLE.BIN"})


def list_images(folder: str | Path, left_out: LeftOut | None = None) -> list[str]:
    """The sorted paths of all files below ``folder``, at any depth, whose extension is that of an image.

    Links are followed; a folder that can be reached twice is listed once, under its real path if that is below
    ``folder``. Names that begin with a dot are skipped. Files are not opened, so a broken link named like an image is
    included.
    """
    return _walk(folder, left_out or LeftOut())[0]


def _walk(folder: str | Path, left_out: LeftOut) -> tuple[list[str], list[str]]:
    """(images, folders) below ``folder``."""
    top = os.fspath(folder)
    found: list[str] = []
    visited: list[str] = []
    # A link to a folder above the top would lead back to the top, so these count as visited.
    seen = {_identity(str(above)) for above in Path(os.path.realpath(top)).parents}
    folders, links = [top], list[str]()
    while folders or links:
        current = folders.pop() if folders else heapq.heappop(links)
        identity = _identity(current)
        if identity in seen:
            continue
        seen.add(identity)
        visited.append(current)
        try:
            entries = list(os.scandir(current))
        except OSError as error:
            raise DataError(f"{one_line(current)}: cannot list this folder ({error.strerror})") from None
        for entry in entries:
            if _is_hidden(entry.name):
                if _is_folder(entry):
                    if entry.name not in _LEFTOVERS and _has_images(entry.path):
                        left_out.add("hidden folders", entry.name)
                elif is_hidden_image(entry.name):
                    left_out.add("hidden images", entry.name)
                continue
            if _is_folder(entry):
                if entry.is_symlink():
                    heapq.heappush(links, entry.path)
                else:
                    folders.append(entry.path)
            elif is_image_name(entry.name):
                found.append(entry.path)
            else:
                left_out.look_at(entry.name)
    found.sort()
    return found, visited


def list_folder(folder: Path, left_out: LeftOut | None = None) -> list[str]:
    """As ``list_images``; a folder without images is refused."""
    left_out = left_out or LeftOut()
    return _refuse_none(folder, list_images(folder, left_out), left_out)


def _refuse_none(folder: Path, paths: list[str], left_out: LeftOut) -> list[str]:
    if not paths:
        told = "".join(f" ({warning})" for warning in left_out.warnings(folder.name)[:1])
        raise DataError(f"{one_line(folder)}: no image in this folder or below it{told}")
    return paths


def read_folder(folder: Path, left_out: LeftOut | None = None) -> Listing:
    """The images of a folder, each labelled by the topmost folder on its path, if there is one."""
    left_out = left_out or LeftOut()
    paths, visited = _walk(folder, left_out)
    _refuse_none(folder, paths, left_out)
    base = os.path.join(folder, "")
    below = [path[len(base) :].split(os.sep) for path in paths]
    depth = 0  # amazon/images/back_pack/1.jpg: a lone folder that holds nothing but folders is not a class
    while len({parts[depth] for parts in below}) == 1 and all(len(parts) > depth + 2 for parts in below):
        depth += 1
    labels = [parts[depth] if len(parts) > depth + 1 else None for parts in below]
    if any(labels):
        above, known = below[0][:depth], set(labels)
        below_top = (path[len(base) :].split(os.sep) for path in visited if len(path) > len(base))
        for parts in below_top:
            if parts[:-1] == above and parts[-1] not in known:
                left_out.add("empty folders", parts[-1])
    return Listing(folder, [Row(0, *pair) for pair in zip(paths, labels, strict=True)], explicit_labels=False)


def is_leftover_name(path: str) -> bool:
    """Whether a folder would leave this file out, in a shard too: hidden, or of a file manager."""
    return any(_is_hidden(part) for part in path.split("/"))


def is_hidden_image(path: str) -> bool:
    """Of a file that is left out: whether it may be an image that somebody wants, and no file manager's copy."""
    return is_image_name(path) and not any(part in _LEFTOVERS or part.startswith("._") for part in path.split("/"))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name in _LEFTOVERS


def _has_images(folder: str) -> bool:
    try:
        return any(is_image_name(entry.name) for entry in os.scandir(folder))
    except OSError:
        return False


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _identity(folder: str) -> tuple[int, int]:
    try:
        status = os.stat(folder)
    except OSError as error:
        raise DataError(f"{one_line(folder)}: cannot list this folder ({error.strerror})") from None
    return status.st_dev, status.st_ino
