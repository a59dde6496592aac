"""Batches of a pair of domains; as a program, those of one process of two, and the shards that it had to look through.

python shard_batches.py SOURCE TARGET RANK
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from pmtrans.data.batch import Batch
from pmtrans.data.loader import pair_batches
from pmtrans.data.reading import shard_index
from pmtrans.data.reading.read import read_source, read_target
from pmtrans.data.sampling import PairSampler, Share, Stream
from pmtrans.data.transforms import Preprocessing, training_transform

LOOKS = Preprocessing(32, 36, "bicubic", (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


def batches(source: Path, target: Path, share: tuple[int, int] = (0, 1), **more: Any) -> list[Batch]:
    """Three batches from the fourth on, as a resumed run draws them."""
    labelled = read_source(source)
    domain = read_target(target, labelled.classes).domain
    streams = Stream(5, "source", len(labelled)), Stream(5, "target", len(domain))
    sampler = Share(PairSampler(streams, 4, 3, 6), *share)
    transform = training_transform(LOOKS)
    return list(pair_batches(labelled, domain, transform, sampler, 5, LOOKS, **{"workers": 0, **more}))


def digests(found: list[Batch], rows: slice) -> list[str]:
    """Of the pixels of these rows."""
    images = [part[rows] for batch in found for part in (batch.source_images, batch.target_images)]
    return [hashlib.blake2b(part.numpy().tobytes()).hexdigest() for part in images]


def main() -> None:
    made: list[str] = []
    read_index = shard_index.read_index

    def counted(file: Any, size: int, shard: str, label_key: str | None = None) -> shard_index.ShardIndex:
        made.append(shard)
        return read_index(file, size, shard, label_key)

    shard_index.read_index = counted
    found = batches(Path(sys.argv[1]), Path(sys.argv[2]), (int(sys.argv[3]), 2))
    print(json.dumps({"pixels": digests(found, slice(None)), "made": made}))


if __name__ == "__main__":
    main()
