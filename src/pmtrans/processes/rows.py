"""One batch, several processes: each encodes its own rows, all see the features of the whole.

A method is written for a whole batch of B pairs and knows nothing of this. Only the transformer, where the time goes,
is divided: ``Backbone.encode`` takes its share of the rows and gathers what comes out. Every process then computes the
same loss of the same features, with the same random numbers. So losses over the batch are those of one process, for
any method; and a gradient, once it is the mean over processes (as DDP and FSDP make it), is that of one process too:

- what comes before or inside the transformer gets the gradient of its own rows, times W processes (``gather``): the
  mean over processes is the sum over rows;
- what comes after it gets the whole gradient in every process: the mean changes nothing.

Rows come in blocks of B (source, target, mixed ...); every process takes the same part of each block, so that what
belongs to one pair stays in one place.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Division:
    """Process ``rank`` of ``count`` has ``share`` rows of every block of ``share * count``."""

    rank: int
    count: int
    share: int

    def mine(self, whole: Tensor) -> Tensor:
        """This process's rows, in order."""
        blocks: Tensor = whole.unflatten(0, (-1, self.count, self.share))
        return blocks[:, self.rank].flatten(0, 1)

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes in the order of the whole batch; gradients come back to their own process."""
        gathered: Tensor = _Gather.apply(rows, self)
        return gathered

    def divides(self, rows: int) -> bool:
        return rows % (self.count * self.share) == 0


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, division: Division) -> Tensor:
        ctx.division = division
        gathered = rows.new_empty(division.count * len(rows), *rows.shape[1:])
        dist.all_gather_into_tensor(gathered, rows.contiguous())
        by_process: Tensor = gathered.unflatten(0, (division.count, -1, division.share))
        return by_process.transpose(0, 1).flatten(0, 2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.division.mine(gradients[0]) * ctx.division.count, None


@dataclass
class Piece:
    """Rows from ``start`` on of a process's ``total``, where they are encoded piece by piece.

    The first piece draws for all rows and leaves in ``drawn`` what the others take: so the numbers are those of an
    undivided pass, and so is the state of the generator after it.
    """

    start: int
    rows: int
    total: int
    drawn: list[Tensor]
    number: int = 0  # of the next draw

    def take(self, draw: Callable[[int], Tensor]) -> Tensor:
        if self.start == 0:  # again when it is recomputed: the generator must move as it did, to the same numbers
            self.drawn[self.number : self.number + 1] = [draw(self.total)]
        self.number += 1
        return self.drawn[self.number - 1][self.start : self.start + self.rows]


_piece: ContextVar[Piece | None] = ContextVar("piece", default=None)
_division: ContextVar[Division | None] = ContextVar("division", default=None)


@contextmanager
def divided(rank: int, count: int, batch: int) -> Iterator[None]:
    """While it lasts, ``encode`` divides batches of ``batch`` pairs among ``count`` processes."""
    token = _division.set(Division(rank, count, batch // count) if count > 1 else None)
    try:
        yield
    finally:
        _division.reset(token)


@contextmanager
def undivided() -> Iterator[None]:
    """While it lasts, every process works on whole batches."""
    token = _division.set(None)
    try:
        yield
    finally:
        _division.reset(token)


def division() -> Division | None:
    """How rows are divided now; None: not at all."""
    return _division.get()


def piece() -> Piece | None:
    """The piece that is encoded now; None: all rows at once."""
    return _piece.get()


@contextmanager
def divided_as(shared: Division | None, part: Piece | None) -> Iterator[None]:
    """As it was at another moment: what is computed again, perhaps in another thread, must be divided again."""
    tokens = _division.set(shared), _piece.set(None if part is None else copy.copy(part))
    try:
        yield
    finally:
        _division.reset(tokens[0])
        _piece.reset(tokens[1])


def own_rows(whole: Tensor) -> Tensor:
    """For code that acts inside the transformer on something made for the whole batch."""
    now = division()
    return whole if now is None else now.mine(whole)


def all_rows(rows: Tensor) -> Tensor:
    """For code inside the transformer that must see the whole batch."""
    now = division()
    return rows if now is None else now.gather(rows)
