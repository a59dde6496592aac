"""Time and memory to list a large domain: 200,000 files in class folders.

python benchmarks/listing.py [--files 200000] [--classes 345]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from pmtrans.data.reading.read import read_source


def main() -> None:
    """Create the files, read them as a source, and print time and memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--classes", type=int, default=345)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.files):
            place = Path(folder) / f"class_{number % arguments.classes:03d}"
            if number < arguments.classes:
                place.mkdir()
            (place / f"image_{number:06d}.jpg").touch()
        before = _megabytes()
        start = time.perf_counter()
        domain = read_source(folder)
        seconds = time.perf_counter() - start
        print(f"{len(domain)} files, {len(domain.classes)} classes: {seconds:.2f} s, "
              f"{_megabytes():.0f} MB at most ({before:.0f} MB before)")  # fmt: skip


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
