"""What is measured of one image agrees with plain arithmetic on its pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter

from hostile_images import noise
from pmtrans.data.checking.facts import image_facts, shape_warnings, summarise


def test_size_colour_contrast_and_sharpness(tmp_path: Path) -> None:
    image = noise(0, (60, 50))
    image.save(tmp_path / "a.png")
    found = image_facts(str(tmp_path / "a.png"))
    pixels, grey = np.asarray(image, dtype=float), np.asarray(image.convert("L"), dtype=float)
    assert (found.width, found.height) == (60, 50)
    assert found.colour == pytest.approx(tuple(pixels.mean(axis=(0, 1))))
    assert found.contrast == pytest.approx(grey.std())
    laplacian = [
        grey[y - 1, x] + grey[y + 1, x] + grey[y, x - 1] + grey[y, x + 1] - 4 * grey[y, x]
        for y in range(1, 49)
        for x in range(1, 59)
    ]
    assert found.sharpness == pytest.approx(np.var(laplacian), rel=1e-4)
    assert found.thumbnail.shape == (16, 16, 3)


def test_a_blurred_image_is_less_sharp(tmp_path: Path) -> None:
    noise(1, (300, 300)).save(tmp_path / "a.png")
    noise(1, (300, 300)).filter(ImageFilter.GaussianBlur(3)).save(tmp_path / "b.png")
    sharp, blurred = (image_facts(str(tmp_path / name)).sharpness for name in ("a.png", "b.png"))
    assert blurred < sharp / 5


def test_pixels_decide_equality_not_the_file_format_and_shape_counts(tmp_path: Path) -> None:
    image = noise(2, (12, 10))
    digests = {}
    for name in ("a.png", "a.bmp", "a.tif"):
        image.save(tmp_path / name)
        digests[name] = image_facts(str(tmp_path / name)).pixel_digest
    assert len(set(digests.values())) == 1
    Image.frombytes("RGB", (10, 12), image.tobytes()).save(tmp_path / "other.png")
    assert image_facts(str(tmp_path / "other.png")).pixel_digest != digests["a.png"]


def test_statistics_and_warnings_of_odd_shapes(tmp_path: Path) -> None:
    sizes = {"a.png": (100, 50), "b.png": (20, 80), "c.png": (500, 100)}
    for name, size in sizes.items():
        noise(3, size).save(tmp_path / name)
    paths = [str(tmp_path / name) for name in sizes]
    found = [image_facts(path) for path in paths]
    statistics = summarise(found)
    assert statistics is not None
    assert (statistics.width.min, statistics.width.median, statistics.width.max) == (20, 100, 500)
    assert (statistics.aspect_ratio.min, statistics.aspect_ratio.max) == (0.25, 5)
    tiny, long = shape_warnings("source", paths, found)
    assert tiny.startswith("source: 1 images")
    assert "b.png" in tiny
    assert "c.png" in long
    assert summarise([]) is None
