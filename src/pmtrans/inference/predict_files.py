"""Predictions of any number of images into one file: in order, in constant memory, resumable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from pmtrans.errors import RunError, one_line
from pmtrans.files import write_atomically
from pmtrans.inference.inputs import PathList
from pmtrans.inference.journal import fingerprint_of, open_journal
from pmtrans.inference.output import CsvWriter, Row, as_row, columns, writer_for
from pmtrans.inference.prediction import Prediction
from pmtrans.inference.predictor import Predictor
from pmtrans.signals import StopRequest

Advance = Callable[[int], None]


@dataclass(frozen=True)
class PredictOptions:
    """What the rows depend on besides model and images (so not the number of workers)."""

    batch_size: int = 32
    top: int = 1
    abstain_below: float = 0.0
    prior: str | None = None


@dataclass
class Counts:
    """The numbers for the message at the end."""

    images: int = 0
    unreadable: int = 0
    abstained: int = 0  # of the readable ones
    resumed_at: int = 0

    def add(self, error: str | None, abstain: bool) -> None:
        self.images += 1
        self.unreadable += error is not None
        self.abstained += abstain and error is None


def predict_to_file(
    predictor: Predictor,
    model_folder: Path,
    paths: PathList,
    out: Path,
    options: PredictOptions,
    workers: int,
    advance: Advance,
    stop: StopRequest,
    rows_of: Callable[[PathList], Iterator[list[Row]]] | None = None,
) -> Counts:
    """Write ``out`` in the format of its suffix. After a signal, the same call resumes from the journal.

    ``rows_of`` gives the rows of whole batches in place of ``predictor``: those that other processes compute.
    """
    write = writer_for(out)
    if out.is_dir():
        raise RunError(f"{one_line(out)!r} is a folder: give --out a file.")
    fingerprint = fingerprint_of(model_folder, paths, asdict(options))
    is_open = predictor.trained.unknown is not None
    with open_journal(out, fingerprint, options.batch_size) as journal:
        counts = Counts(resumed_at=journal.done)
        advance(journal.done)
        if journal.done < len(paths):  # slicing copies, so slice only when resuming
            remaining = paths[journal.done :] if journal.done else paths
            for rows in (rows_of or _rows_by(predictor, options, workers))(remaining):
                with _writing(out):
                    journal.append(rows)
                advance(len(rows))
                stop.check()
        for row in journal.rows():
            counts.add(row["error"], row["abstain"])
        with _writing(out):
            write_atomically(out, lambda temporary: write(temporary, journal.rows(), columns(options.top, is_open)))
    return counts


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Turn a failed write, such as on a full disk, into a one-line error; the journal stays."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{one_line(out)!r} cannot be written: {one_line(error.strerror or error)}.") from None


def predict_to_stream(
    predictor: Predictor,
    paths: PathList,
    file: IO[str],
    options: PredictOptions,
    workers: int,
    advance: Advance,
    stop: StopRequest,
) -> Counts:
    """Write CSV to an open stream, flushed after each batch."""
    counts = Counts()
    is_open = predictor.trained.unknown is not None
    writer = CsvWriter(file, columns(options.top, is_open))
    for batch in _batches(predictor, paths, options, workers):
        writer.write(as_row(prediction, options.top, is_open) for prediction in batch)
        file.flush()
        for prediction in batch:
            counts.add(prediction.error, prediction.abstain)
        advance(len(batch))
        stop.check()
    return counts


def _rows_by(predictor: Predictor, options: PredictOptions, workers: int) -> Callable[[PathList], Iterator[list[Row]]]:
    is_open = predictor.trained.unknown is not None

    def rows_of(paths: PathList) -> Iterator[list[Row]]:
        for batch in _batches(predictor, paths, options, workers):
            yield [as_row(prediction, options.top, is_open) for prediction in batch]

    return rows_of


def _batches(
    predictor: Predictor, paths: PathList, options: PredictOptions, workers: int
) -> Iterator[list[Prediction]]:
    return predictor.stream_batches(paths, options.batch_size, workers, options.abstain_below)
