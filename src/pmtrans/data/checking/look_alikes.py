"""Groups of source images that look alike: frames of one scene, or copies that were resized or recompressed.

A held-out image whose twin is trained on tells nothing new, so a group is held out whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageStat

from pmtrans.data.checking.duplicates import groups, near_pairs
from pmtrans.data.checking.facts import SMALL_SIDE, THUMBNAIL, perceptual_hash

MOST = 100_000  # images that are compared: their thumbnails take 77 MB


@dataclass(frozen=True)
class Look:
    """What ``near_pairs`` compares."""

    perceptual_hash: int
    thumbnail: NDArray[np.uint8]
    contrast: float


def look_of(image: Image.Image) -> Look | None:
    """None of an image so small that many different ones have its hash."""
    if min(image.size) < SMALL_SIDE:
        return None
    thumbnail = np.asarray(image.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX))
    return Look(perceptual_hash(image), thumbnail, ImageStat.Stat(image.convert("L")).stddev[0])


def look_alikes(paths: Sequence[str], looks: Mapping[str, Look]) -> list[list[int]]:
    """Places in ``paths`` of two or more images that look alike."""
    places = [place for place, path in enumerate(paths) if path in looks]
    if len(places) < 2:
        return []
    seen = [looks[paths[place]] for place in places]
    thumbnails = np.stack([look.thumbnail for look in seen])
    pairs = near_pairs([look.perceptual_hash for look in seen], thumbnails, [look.contrast for look in seen])
    return [[places[number] for number in group] for group in groups(pairs)]
