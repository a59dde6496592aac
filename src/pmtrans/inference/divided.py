"""Predictions by several processes: the rows of one process, in its order.

A piece of work is some whole batches, cut where one process would cut them. Only the main process writes, in order, to
the journal, so whatever is killed, each image has exactly one row.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pmtrans.errors import DataError
from pmtrans.inference.output import as_row
from pmtrans.inference.predictor import Predictor, load
from pmtrans.processes.pool import Pool, enter, map_in_order, start_of, unwrap
from pmtrans.run.model_notes import PriorName

Row = dict[str, Any]
_PIECE = 8  # batches: enough that sending them costs nothing, few enough that a killed process loses little


@dataclass(frozen=True)
class Piece:
    """Images of some whole batches, and all that their rows depend on."""

    model: str
    device: str | None
    paths: tuple[str, ...]
    batch_size: int
    top: int
    abstain_below: float
    prior: PriorName | None
    workers: int
    start: str | None  # the folder that relative paths start from


def divided_rows(
    pool: Pool, model: Path, device: str | None, paths: Sequence[str], options: Any, workers: int
) -> Iterator[list[Row]]:
    """The rows of all images, some batches at a time."""
    step = options.batch_size * _PIECE
    cut = (tuple(paths[begin : begin + step]) for begin in range(0, len(paths), step))
    pieces = (
        Piece(
            str(model.absolute()),
            device,
            images,
            options.batch_size,
            options.top,
            options.abstain_below,
            options.prior,
            workers,
            start_of(images),
        )
        for images in cut
    )
    for rows in map_in_order(pool, predict_piece, pieces):
        yield unwrap(rows)


def predict_piece(piece: Piece) -> list[Row] | str:
    """In a process of the pool; what is wrong is returned, as an exception would lose its words on the way."""
    try:
        enter(piece.start)
        predictor = _predictor(piece.model, piece.device, piece.prior)
        is_open = predictor.trained.unknown is not None
        batches = predictor.stream_batches(piece.paths, piece.batch_size, piece.workers, piece.abstain_below)
        return [as_row(prediction, piece.top, is_open) for batch in batches for prediction in batch]
    except DataError as error:
        return str(error)


@functools.lru_cache(maxsize=1)
def _predictor(model: str, device: str | None, prior: PriorName | None) -> Predictor:
    """Loaded once in a process."""
    return load(model, device, prior)
