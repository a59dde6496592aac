"""How much JPEG draft decoding saves on photographs: milliseconds per image, full and reduced.

    python benchmarks/decode.py [--images 8] [--at-least 256]
    python benchmarks/decode.py --cache [--images 200] [--folder office31/amazon]

With ``--cache``: images per second through the loader without a cache, filling one, and reading from it.

The photographs are generated: smooth colour fields with fine noise, at the sizes of real cameras.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from pmtrans.data.cache import open_cache
from pmtrans.data.image import is_image_name, load_image
from pmtrans.data.loader import image_batches
from pmtrans.data.transforms import Preprocessing

SIZES = {
    "12 megapixels": (4000, 3000),
    "2 megapixels": (1920, 1080),
    "Office-Home": (800, 700),
    "small": (300, 300),
}


def main() -> None:
    """Print one line per size of photograph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--at-least", type=int, default=256)
    parser.add_argument("--cache", action="store_true", help="measure data.cache instead")
    parser.add_argument("--folder", type=Path, help="images to measure the cache on; generated 1000x1000 JPEGs if none")
    arguments = parser.parse_args()
    if arguments.cache:
        print(json.dumps(cache_gain(arguments.folder, arguments.images, arguments.at_least)))
        return
    print(f"shorter side needed: {arguments.at_least}, then resized to it; median of {arguments.images} images")
    with tempfile.TemporaryDirectory() as folder:
        for name, size in SIZES.items():
            paths = [str(photograph(Path(folder), size, seed)) for seed in range(arguments.images)]
            full = np.median([seconds(path, None, arguments.at_least) for path in paths])
            reduced = np.median([seconds(path, arguments.at_least, arguments.at_least) for path in paths])
            times = f"full {full * 1e3:7.2f} ms, reduced {reduced * 1e3:6.2f} ms"
            print(f"{name:14} {size[0]}x{size[1]}: {times}, {full / reduced:.1f} times faster")


def cache_gain(given: Path | None, images: int, side: int) -> dict[str, float | str]:
    """Of one process; by its own time (processor), which a busy machine does not distort, and by the clock."""
    preprocessing = Preprocessing(round(0.875 * side), side, "bicubic", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    result: dict[str, float | str] = {"images": str(given or "generated 1000x1000")}
    with tempfile.TemporaryDirectory() as folder:
        if given is None:
            paths = [str(photograph(Path(folder), (1000, 1000), seed)) for seed in range(images)]
        else:
            paths = sorted(str(path) for path in given.rglob("*") if is_image_name(path.name))[:images]
        kept = Path(folder) / "cache"
        for name, cache in (("without", None), ("cold", str(kept)), ("warm", str(kept))):
            opened = open_cache(cache, print)
            start, used = time.perf_counter(), time.process_time()
            seen = sum(len(batch) for batch, _ in image_batches(paths, preprocessing, 32, 0, opened))
            result[f"{name}_images_per_processor_second"] = seen / (time.process_time() - used)
            result[f"{name}_images_per_second"] = seen / (time.perf_counter() - start)
        result["bytes_per_image"] = sum(file.stat().st_size for file in kept.rglob("*") if file.is_file()) / seen
    return result


def photograph(folder: Path, size: tuple[int, int], seed: int) -> Path:
    """A generated JPEG of about the size in bytes of a real one."""
    generator = np.random.default_rng(seed)
    coarse = Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    pixels = np.asarray(coarse.resize(size, Image.Resampling.BICUBIC), dtype=np.int16)
    grain = generator.normal(0, 6, pixels.shape).astype(np.int16)
    path = folder / f"{size[0]}-{seed}.jpg"
    Image.fromarray(np.clip(pixels + grain, 0, 255).astype(np.uint8)).save(path, quality=92)
    return path


def seconds(path: str, at_least: int | None, side: int) -> float:
    """The time to decode and to resize to what a network gets."""
    start = time.process_time()
    load_image(path, at_least).resize((side, side), Image.Resampling.BICUBIC)
    return time.process_time() - start


if __name__ == "__main__":
    main()
