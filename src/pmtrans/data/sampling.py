"""Data order and augmentation seeds as pure functions of (seed, domain, epoch, index).

So neither loader workers, nor resuming, nor the number of processes changes how image 17 looks in the third epoch. A
domain is an endless stream: position p is image ``order(p // n)[p % n]``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from pmtrans.config import TrainConfig


def random_seed(*key: int | str) -> int:
    """A 63-bit seed, a hash of the whole key."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@lru_cache(maxsize=64)
def _order(seed: int, domain: str, epoch: int, images: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.random.default_rng(random_seed(seed, "order", domain, epoch)).permutation(images)


@dataclass(frozen=True)
class Draw:
    """One image in one pass over its domain: with the seed, this determines its augmented pixels."""

    domain: str  # "source" or "target"
    epoch: int  # which pass over this domain
    index: int


@dataclass(frozen=True)
class Stream:
    """The endless, shuffled stream of one domain."""

    seed: int
    domain: str
    images: int

    def at(self, position: int) -> Draw:
        """The image at a position of the stream."""
        epoch, place = divmod(position, self.images)
        return Draw(self.domain, epoch, int(_order(self.seed, self.domain, epoch, self.images)[place]))


@dataclass(frozen=True)
class ClassBalancedStream:
    """The endless stream of a labelled domain that has every class once in each round.

    Position p is number k of round r, with r, k = divmod(p, classes). The classes of a round are shuffled; each takes
    image r of its own endless, shuffled stream. ``Draw.epoch`` counts the passes over the class.
    """

    seed: int
    domain: str
    labels: tuple[int, ...]
    _orders: dict[int, tuple[int, list[int]]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def _members(self) -> list[list[int]]:
        """The images of each class."""
        members: dict[int, list[int]] = {label: [] for label in sorted(set(self.labels))}
        for index, label in enumerate(self.labels):
            members[label].append(index)
        return list(members.values())

    def at(self, position: int) -> Draw:
        """The image at a position of the stream."""
        turn, place = divmod(position, len(self._members))
        number = int(_order(self.seed, f"classes of {self.domain}", turn, len(self._members))[place])
        epoch, place = divmod(turn, len(self._members[number]))
        return Draw(self.domain, epoch, self._order_of(number, epoch)[place])

    def _order_of(self, number: int, epoch: int) -> list[int]:
        """The images of a class in one pass over them; that of the latest pass is kept."""
        if self._orders.get(number, (-1,))[0] != epoch:
            members = self._members[number]
            random = np.random.default_rng(random_seed(self.seed, "order", self.domain, "class", number, epoch))
            self._orders[number] = epoch, [members[place] for place in random.permutation(len(members))]
        return self._orders[number][1]


@dataclass(frozen=True)
class SourceBalancedStream:
    """The endless stream of a source made of several: they take turns, each with its own endless, shuffled stream.

    Position p is image p // sources of source p % sources, so that of any batch each has an equal share (to within
    one image, where they do not divide it). ``Draw.epoch`` counts the passes over that source, or over its class.
    """

    seed: int
    domain: str
    labels: tuple[int, ...]
    origins: tuple[int, ...]
    by_class: bool

    @cached_property
    def _sources(self) -> list[tuple[list[int], Stream | ClassBalancedStream]]:
        """The images of each source, and the stream that runs over their places in it."""
        found: list[tuple[list[int], Stream | ClassBalancedStream]] = []
        for number in range(max(self.origins) + 1):
            members = [index for index, origin in enumerate(self.origins) if origin == number]
            name = f"{self.domain} {number}"
            labels = tuple(self.labels[index] for index in members)
            stream = ClassBalancedStream(self.seed, name, labels) if self.by_class else None
            found.append((members, stream or Stream(self.seed, name, len(members))))
        return found

    def at(self, position: int) -> Draw:
        """The image at a position of the stream."""
        turn, number = divmod(position, len(self._sources))
        members, stream = self._sources[number]
        draw = stream.at(turn)
        return Draw(self.domain, draw.epoch, members[draw.index])


@dataclass(frozen=True)
class WithTargetLabels:
    """The stream of a source among which labelled target images are spread evenly: their share of any batch is fixed.

    Before position p there are floor(p share) of them. In the domain they stand after the ``images`` of the source.
    """

    source: Stream | ClassBalancedStream | SourceBalancedStream
    seed: int
    images: int
    labelled: int
    share: Fraction

    def at(self, position: int) -> Draw:
        """The image at a position of the stream."""
        before, with_this = (
            place * self.share.numerator // self.share.denominator for place in (position, position + 1)
        )
        if with_this == before:
            return self.source.at(position - before)
        draw = Stream(self.seed, "target labels", self.labelled).at(before)
        return Draw("source", draw.epoch, self.images + draw.index)


AnyStream = Stream | ClassBalancedStream | SourceBalancedStream | WithTargetLabels


@dataclass(frozen=True)
class PairSampler:
    """Batches ``first`` to ``last`` (excluded) of pairs; each lists the source draws, then the target draws."""

    streams: tuple[AnyStream, ...]
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
    """Batches ``first`` to ``last`` (excluded) of pairs that a method chose; ``epoch`` only seeds the augmentation."""

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
    """The part of every batch that process ``rank`` of ``count`` loads: the same slice of each domain."""

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
    """The larger domain defines an epoch; the smaller one is repeated."""
    return max(1, max(source_images, target_images) // pairs_per_step)


def count_steps(config: TrainConfig, source_images: int, target_images: int, batch_size: int) -> tuple[int, int]:
    """(total steps, steps per epoch)."""
    epoch = config.epoch_steps or steps_per_epoch(source_images, target_images, batch_size * config.accumulate)
    return min(config.epochs * epoch, config.max_steps or config.epochs * epoch), epoch
