"""An order of target images that does not depend on their class folders.

Where labels are folder names, a path contains the label. Sorted by path, the same images with other labels would give
another training run. So a target is sorted by file name, size and, where both are equal, content.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence


def label_free_order(paths: Sequence[str]) -> list[int]:
    """Positions of ``paths``, sorted in an order that does not change when files move between folders."""
    keys = [(os.path.basename(path), _size(path)) for path in paths]
    shared = Counter(keys)
    full = [(*key, _content(path) if shared[key] > 1 else b"") for key, path in zip(keys, paths, strict=True)]
    return sorted(range(len(paths)), key=lambda position: full[position])


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1  # unreadable files are reported by the check


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return hashlib.blake2b(file.read()).digest()
    except OSError:
        return b""
