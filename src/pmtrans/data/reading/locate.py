"""Where the images of a list lie on this machine: other people's prefixes replaced by a root."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from pmtrans.errors import DataError, one_line

_PROBES = 5


def locate(paths: Sequence[str], origin: Path, root: str | Path | None) -> list[str]:
    """The paths of a list or table as they are found here.

    Without a root they count from the folder of the list, its parent, or the working folder, whichever
    has them. With a root, leading folders are dropped until the rest exists below it; a path that needs no
    repair is kept. This is decided once per folder, by its first files; a single missing file stays where it
    should have been.
    """
    by_folder: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        folder, name = os.path.split(_slashes(path))
        if len(by_folder[folder]) < _PROBES:
            by_folder[folder].append(name)
    candidates = {folder: _candidates(folder, origin, root) for folder in by_folder}
    homes = {folder: _home(candidates[folder], names) for folder, names in by_folder.items()}
    if paths and not any(homes.values()):
        hint = "no image of the list is below the root" if root else "say where the images are by root"
        raise DataError(f"{one_line(origin)}: {one_line(paths[0])} is not there: {hint}")
    located = []
    for path in paths:
        folder, name = os.path.split(_slashes(path))
        located.append(os.path.join(homes[folder] or candidates[folder][0], name))
    return located


def _slashes(path: str) -> str:
    return path.replace("\\", "/") if "/" not in path else path  # a list written on Windows


def _candidates(folder: str, origin: Path, root: str | Path | None) -> list[str]:
    if root is None:
        bases = (origin.parent, origin.parent.parent, Path.cwd())
        return [os.path.normpath(os.path.join(base, folder)) for base in bases]
    parts = [part for part in folder.split("/") if part]
    below = [os.path.normpath(os.path.join(root, *parts[dropped:])) for dropped in range(len(parts) + 1)]
    return [*below, folder if os.path.isabs(folder) else os.path.join(origin.parent, folder)]


def _home(candidates: Sequence[str], names: Sequence[str]) -> str | None:
    for folder in candidates:
        if any(os.path.lexists(os.path.join(folder, name)) for name in names):
            return folder
    return None
