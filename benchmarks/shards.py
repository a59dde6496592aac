"""Tiny generated images in shards: time to list them, first and again, one pass of the loader, and memory.

python benchmarks/shards.py --images 20000 [--images-per-shard 1000] [--side 8] [--workers 2] [--folder DIR]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from PIL import Image

from pmtrans.data.loader import image_batches
from pmtrans.data.packed import HEADER
from pmtrans.data.reading.read import read_source, read_target
from pmtrans.data.transforms import Preprocessing

CLASSES = 100
DISTINCT = 256  # pictures: to encode a million would measure the encoder


def main() -> None:
    """Write the shards, list them as a source and as a target, read every image once, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--images-per-shard", type=int, default=1000)
    parser.add_argument("--side", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        found = measure(Path(folder), given.images, given.images_per_shard, given.side, given.workers, given.images)
    print(json.dumps({name: round(value, 2) for name, value in found.items()}))


def measure(folder: Path, images: int, per_shard: int, side: int, workers: int, pass_images: int) -> dict[str, float]:
    """Write, list and read; ``pass_images``: how many of them, the first, one pass of the loader reads."""
    os.environ["PMTRANS_CACHE"] = str(folder / "cache")
    found: dict[str, float] = {"images": images}
    start = time.perf_counter()
    write_shards(folder, images, per_shard, side)
    found["write_seconds"] = time.perf_counter() - start
    before = resident()
    for name in ("list_first_seconds", "list_again_seconds"):
        start = time.perf_counter()
        source = read_source(folder / "*.tar")
        found[name] = time.perf_counter() - start
    start = time.perf_counter()
    target = read_target(folder / "*.tar", source.classes)
    found["list_target_seconds"] = time.perf_counter() - start
    found["list_megabytes"] = resident() - before
    paths = target.domain.paths[:pass_images]
    start, highest, seen = time.perf_counter(), 0.0, 0
    looks = Preprocessing(side, side, "bicubic", (0.5,) * 3, (0.25,) * 3)
    for number, (batch, errors) in enumerate(image_batches(paths, looks, 256, workers)):
        assert not any(errors)
        seen += len(batch)
        if number % 50 == 0:
            highest = max(highest, resident())
    assert seen == len(paths)
    found["pass_images"] = seen
    found["pass_seconds"] = time.perf_counter() - start
    found["pass_megabytes_all_processes"] = highest
    return found


def write_shards(folder: Path, images: int, per_shard: int, side: int) -> None:
    pictures = []
    for number in range(DISTINCT):
        buffer = io.BytesIO()
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (side, side, 3), dtype=np.uint8)).save(
            buffer, "PNG"
        )
        pictures.append(member(buffer.getvalue()))
    labels = [member(b"class_%03d" % number) for number in range(CLASSES)]
    for start in range(0, images, per_shard):
        parts: list[bytes] = []
        for number in range(start, min(start + per_shard, images)):
            key = b"class_%03d/%08d" % (number % CLASSES, number)
            parts += named(key + b".png", pictures[number % DISTINCT])
            parts += named(key + b".cls", labels[number % CLASSES])
        parts.append(bytes(2 * HEADER))
        (folder / f"made-{start // per_shard:06d}.tar").write_bytes(b"".join(parts))


def member(content: bytes) -> tuple[bytes, int, bytes]:
    """Header, the sum of its bytes, and padded content of a file of a tar that has no name yet.

    To let ``tarfile`` write a million headers would take most of the benchmark's time.
    """
    info = tarfile.TarInfo("")
    info.size = len(content)
    header = info.tobuf(tarfile.GNU_FORMAT)
    header = header[:148] + b" " * 8 + header[156:]  # what the checksum counts for itself
    return header, sum(header), content + bytes(-len(content) % HEADER)


def named(name: bytes, made: tuple[bytes, int, bytes]) -> tuple[bytes, ...]:
    """The bytes of that file under a name."""
    header, total, content = made
    return name, header[len(name) : 148], b"%06o\0 " % (total + sum(name)), header[156:], content


def resident() -> float:
    """MB of this process and its workers that no other process has."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return float(sum(process.memory_full_info().uss for process in processes if process.is_running())) / 2**20


if __name__ == "__main__":
    main()
