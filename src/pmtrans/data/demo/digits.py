"""The demo's two domains: printed digits (source, rendered here) and handwritten ones (target, from scikit-learn).

A small synthetic-to-real task without a download. Both are 8x8 grey PNG files on the same counting grid.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

from pmtrans.data.demo.glyphs import COUNT, FONTS, Variation, render_glyph
from pmtrans.errors import DataError
from pmtrans.texts import read_json

DIGITS = "0123456789"

PER_CLASS = 200
"""Printed images of each digit: about as many in all as there are handwritten ones (1,797)."""

PRINTED_VARIATION = Variation(rotation=8, shear=0.15, stretch=0.2, thinner=0.01, thicker=0.03, shrink=0.1, shift=1)

_MARKER = "digits.json"
_REVISION = 1  # increase it when the images change, so that folders of an older version are not reused


def render_printed_digits(seed: int = 0, per_class: int | None = None) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Grids (10 x ``per_class``, 8, 8) of counts 0 to 16 and their labels; fonts alternate."""
    count = PER_CLASS if per_class is None else per_class
    random = np.random.default_rng(seed)
    grids = [
        render_glyph(digit, FONTS[index % len(FONTS)], PRINTED_VARIATION, random)
        for digit in DIGITS
        for index in range(count)
    ]
    return np.stack(grids), np.repeat(np.arange(len(DIGITS)), count)


def handwritten_digits() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The 1,797 handwritten digits that scikit-learn ships, as grids of counts 0 to 16, and their labels."""
    bundle = load_digits()
    return bundle.images.astype(np.uint8), bundle.target.astype(np.int64)


def write_digits(folder: Path, seed: int = 0, per_class: int | None = None) -> tuple[Path, Path]:
    """Write ``folder/source`` and ``folder/target``, one class folder per digit, and return both.

    All images, or ``per_class`` of each digit (the first of the handwritten ones). A folder that already holds exactly
    these images is reused; one with any other content is refused. The write is atomic.
    """
    request = {"revision": _REVISION, "seed": seed} | ({} if per_class is None else {"per_class": per_class})
    if _is_complete(folder, request):
        return folder / "source", folder / "target"
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise _in_use(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        temporary.chmod(0o755)  # mkdtemp makes it private
        _write_domain(temporary / "source", *render_printed_digits(seed, per_class))
        _write_domain(temporary / "target", *_first(per_class, *handwritten_digits()))
        _write_marker(temporary, request)
        try:
            os.replace(temporary, folder)  # replaces an empty folder, never a filled one
        except OSError as error:
            if not _is_complete(folder, request):  # another process may have written the same images
                raise _in_use(folder) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder / "source", folder / "target"


def _in_use(folder: Path) -> DataError:
    return DataError(f"cannot write the demo's digits to {folder}: the folder holds other files; choose an empty one")


def _first(
    per_class: int | None, grids: NDArray[np.uint8], labels: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The first ``per_class`` of each digit, in their order."""
    if per_class is None:
        return grids, labels
    chosen = np.sort(np.concatenate([np.flatnonzero(labels == digit)[:per_class] for digit in range(len(DIGITS))]))
    return grids[chosen], labels[chosen]


def _write_domain(folder: Path, grids: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
    for digit in DIGITS:
        (folder / digit).mkdir(parents=True)
    grey = np.rint(grids.astype(np.float64) * (255 / COUNT)).astype(np.uint8)
    for index, (image, label) in enumerate(zip(grey, labels, strict=True)):
        Image.fromarray(image).save(folder / DIGITS[label] / f"{index:04d}.png")


def _digest(folder: Path) -> str:
    """One hash over names and bytes of all images."""
    total = hashlib.sha256()
    for path in sorted(folder.glob("*/*/*.png")):
        total.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def _write_marker(folder: Path, request: dict[str, int]) -> None:
    marker = {**request, "sha256": _digest(folder)}
    with (folder / _MARKER).open("w", encoding="utf-8") as file:
        json.dump(marker, file)
        file.flush()
        os.fsync(file.fileno())


def _is_complete(folder: Path, request: dict[str, int]) -> bool:
    try:
        marker = read_json(folder / _MARKER)
    except (OSError, ValueError):
        return False
    return bool(marker == {**request, "sha256": _digest(folder)})
