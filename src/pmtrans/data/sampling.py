"""Order and augmentation as functions of (seed, domain, pass, index).

So the number of loader workers, a resume, or the number of processes does not change what image number 17 looks
like in the third pass. A domain is a stream that never ends: position p is image ``order(p // n)[p % n]``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pmtrans.config import TrainConfig


def random_seed(*key: int | str) -> int:
    """A 63-bit seed that depends on every part of the key and on nothing else."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@lru_cache(maxsize=8)
def _order(seed: int, domain: str, epoch: int, images: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.random.default_rng(random_seed(seed, "order", domain, epoch)).permutation(images)


@dataclass(frozen=True)
class Draw:
    """One image of one pass over its domain: all that its pixels depend on besides the seed."""

    domain: str  # "source" or "target"
    epoch: int  # which pass over this domain
    index: int


@dataclass(frozen=True)
class Stream:
    """The endless order of one domain."""

    seed: int
    domain: str
    images: int

    def at(self, position: int) -> Draw:
        """The image at a position of the stream."""
        epoch, place = divmod(position, self.images)
        return Draw(self.domain, epoch, int(_order(self.seed, self.domain, epoch, self.images)[place]))


@dataclass(frozen=True)
class PairSampler:
    """Batches ``first`` to ``last`` of pairs: for each, the draws of the source, then those of the target."""

    streams: tuple[Stream, ...]
    batch_size: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    def __iter__(self) -> Iterator[list[Draw]]:
        for batch in range(self.first, self.last):
            positions = range(batch * self.batch_size, (batch + 1) * self.batch_size)
            yield [stream.at(position) for stream in self.streams for position in positions]


@dataclass(frozen=True)
class ChosenPairs:
    """Batches ``first`` to ``last`` made of pairs that a method chose; ``epoch`` only varies the augmentation."""

    pairs: tuple[tuple[int, int], ...]
    epoch: int
    batch_size: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    def __iter__(self) -> Iterator[list[Draw]]:
        for batch in range(self.first, self.last):
            places = range(batch * self.batch_size, (batch + 1) * self.batch_size)
            chosen = [self.pairs[place % len(self.pairs)] for place in places]
            source = [Draw("source", self.epoch, pair[0]) for pair in chosen]
            yield source + [Draw("target", self.epoch, pair[1]) for pair in chosen]


@dataclass(frozen=True)
class Share:
    """Of every batch the draws that process ``rank`` of ``count`` loads: the same part of each domain's."""

    batches: PairSampler | ChosenPairs
    rank: int
    count: int

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[Draw]]:
        for draws in self.batches:
            mine: list[Draw] = []
            for domain in ("source", "target"):
                of_domain = [draw for draw in draws if draw.domain == domain]
                share = len(of_domain) // self.count
                mine += of_domain[self.rank * share : (self.rank + 1) * share]
            yield mine


def steps_per_epoch(source_images: int, target_images: int, pairs_per_step: int) -> int:
    """The longer domain defines an epoch; the shorter is iterated again."""
    return max(1, max(source_images, target_images) // pairs_per_step)


def count_steps(config: TrainConfig, source_images: int, target_images: int, batch_size: int) -> tuple[int, int]:
    """(all steps, steps of an epoch)."""
    epoch = config.epoch_steps or steps_per_epoch(source_images, target_images, batch_size * config.accumulate)
    return min(config.epochs * epoch, config.max_steps or config.epochs * epoch), epoch
