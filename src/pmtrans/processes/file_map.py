"""A map over files by the processes of a pool: what ``map_files`` gives in one process, in order, each file once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from pmtrans.data.parallel import FileMap, with_progress_bar
from pmtrans.errors import DataError
from pmtrans.processes.pool import Pool, enter, map_in_order, start_of, unwrap

Result = TypeVar("Result")
_PIECE = 64  # files: enough that sending them costs nothing, few enough that a killed process loses little


class Piece(NamedTuple):
    """Some files, what to do with each, and the folder that relative paths start from."""

    function: Callable[[str], Any]
    paths: tuple[str, ...]
    start: str | None


def file_map(pool: Pool) -> FileMap:
    """``map_files`` over a pool. A function must be importable, so that another process finds it."""

    def mapped(function: Callable[[str], Result], paths: Sequence[str], title: str) -> list[Result]:
        cut = (tuple(paths[begin : begin + _PIECE]) for begin in range(0, len(paths), _PIECE))
        done = map_in_order(pool, do_piece, (Piece(function, piece, start_of(piece)) for piece in cut))
        results = with_progress_bar((unwrap(result) for result in done), len(paths), title)
        return [result for several in results for result in several]

    return mapped


def do_piece(piece: Piece) -> list[Any] | str:
    """In a process of the pool; what is wrong is returned, as an exception would lose its words on the way."""
    try:
        enter(piece.start)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's, about files that the result reports anyway
            return [piece.function(path) for path in piece.paths]
    except DataError as error:
        return str(error)
