"""An order of target images that does not depend on their class folders.

A path often contains the label, in a list or a table no less than in a folder. Sorted by path, the same images with
other labels would give another training run. So a target is sorted by file name, size and, where both are equal,
content. Where file names are numbers of rows, which a dataset may have sorted by class, content alone decides.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence

from pmtrans.data.domain import Domain
from pmtrans.data.gate import UnavailableImage
from pmtrans.data.packed import image_bytes, open_image
from pmtrans.data.reading.listing import Listing
from pmtrans.errors import DataError


def unlabelled(listing: Listing) -> Domain:
    """The images of a target. There is no other way from rows to the domain that training sees."""
    paths = [row.path for row in listing.rows]
    order = label_free_order(paths, by_content=listing.numbered_names)
    return Domain(listing.origin, tuple(paths[position] for position in order))


def label_free_order(paths: Sequence[str], by_content: bool = False) -> list[int]:
    """Positions of ``paths``, sorted in an order that does not change when files move between folders."""
    if by_content:
        return sorted(range(len(paths)), key=lambda position: _content(paths[position]))
    names = [os.path.basename(path) for path in paths]
    of_name = Counter(names)  # a size decides between images of one name only: a million names, and no look at a file
    keys = [(name, _size(path) if of_name[name] > 1 else 0) for name, path in zip(names, paths, strict=True)]
    shared = Counter(keys)
    full = [(*key, _content(path) if shared[key] > 1 else b"") for key, path in zip(keys, paths, strict=True)]
    return sorted(range(len(paths)), key=lambda position: full[position])


def _size(path: str) -> int:
    size = image_bytes(path)
    return -1 if size is None else size  # unreadable files are reported by the check


def _content(path: str) -> bytes:
    try:
        with open_image(path) as file:
            return hashlib.blake2b(file.read()).digest()
    except UnavailableImage:
        raise
    except (OSError, DataError):
        return b""
