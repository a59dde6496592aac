"""Find the images of a list on this machine: foreign path prefixes are replaced by a root folder."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from pmtrans.addresses import as_path
from pmtrans.data.packed import packed_image
from pmtrans.errors import DataError, one_line

_PROBES = 5


def locate(paths: Sequence[str], origin: Path, root: str | Path | None) -> list[str]:
    """The paths of a list or table as found on this machine.

    Without a root, they are relative to the folder of the list, its parent, or the working folder, whichever contains
    them. With a root, leading folders are dropped until the remainder exists below it; a path that exists already is
    unchanged. This is decided once per folder, by its first files; a single missing file keeps its expected path.
    """
    in_files = [path for path in paths if packed_image(path) is None]  # that in a shard says where it is
    by_folder: dict[str, list[str]] = defaultdict(list)
    for path in in_files:
        folder, name = os.path.split(_with_slashes(path))
        if len(by_folder[folder]) < _PROBES:
            by_folder[folder].append(name)
    candidates = {folder: _candidates(folder, origin, root) for folder in by_folder}
    found = {folder: _existing_folder(candidates[folder], names) for folder, names in by_folder.items()}
    if in_files and not any(found.values()):
        hint = "no image of the list is below the root" if root else "set root to the folder of the images"
        raise DataError(f"{one_line(origin)}: {one_line(in_files[0])} not found: {hint}")
    located = []
    for path in paths:
        if packed_image(path) is not None:
            located.append(path)
            continue
        folder, name = os.path.split(_with_slashes(path))
        located.append(os.path.join(found[folder] or candidates[folder][0], name))
    return located


def _with_slashes(path: str) -> str:
    return path.replace("\\", "/") if "/" not in path else path  # a list written on Windows


def _candidates(folder: str, origin: Path, root: str | Path | None) -> list[str]:
    if root is None:
        bases = (origin.parent, origin.parent.parent, Path.cwd())
        return [os.path.normpath(os.path.join(base, folder)) for base in bases]
    root = as_path(root)
    parts = [part for part in folder.split("/") if part]
    below = [os.path.normpath(os.path.join(root, *parts[dropped:])) for dropped in range(len(parts) + 1)]
    return [*below, folder if os.path.isabs(folder) else os.path.join(origin.parent, folder)]


def _existing_folder(candidates: Sequence[str], names: Sequence[str]) -> str | None:
    for folder in candidates:
        if any(os.path.lexists(os.path.join(folder, name)) for name in names):
            return folder
    return None
