"""A folder of photographs as pencil drawings: a target that is far from its source, made from images at hand.

    python benchmarks/drawings.py office31/webcam drawings
    pmtrans train --recipe small/office-31-deit-tiny --source office31/amazon --target drawings --out runs/drawings

A drawing is the grey image divided by its blurred negative (a "colour dodge"), darkened.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter, ImageOps

BLUR = 4  # pixels
DARKER = 3  # exponent


def draw(image: Image.Image) -> Image.Image:
    grey = image.convert("L")
    negative = np.asarray(ImageOps.invert(grey).filter(ImageFilter.GaussianBlur(BLUR)), dtype=float)
    dodged = np.clip(np.asarray(grey, dtype=float) * 255 / np.clip(256 - negative, 1, None), 0, 255)
    return Image.fromarray((255 * (dodged / 255) ** DARKER).astype(np.uint8))


def main() -> None:
    source, target = map(Path, sys.argv[1:3])
    for file in sorted(source.rglob("*.jpg")):
        place = target / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        draw(Image.open(file)).save(place, quality=90)


if __name__ == "__main__":
    main()
