"""Very many images to one file: in order, in constant memory, and going on after an interruption."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from pmtrans.errors import RunError, one_line
from pmtrans.files import write_atomically
from pmtrans.inference.inputs import PathList
from pmtrans.inference.journal import identity_of, open_journal
from pmtrans.inference.output import CsvWriter, as_row, columns, writer_for
from pmtrans.inference.prediction import Prediction
from pmtrans.inference.predictor import Predictor
from pmtrans.signals import StopRequest

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Settings:
    """What the rows depend on besides model and images; ``workers`` is not among it."""

    batch_size: int = 32
    top: int = 1
    abstain_below: float = 0.0


@dataclass
class Tally:
    """What to tell at the end."""

    images: int = 0
    unreadable: int = 0
    abstained: int = 0  # of the readable ones
    resumed_at: int = 0

    def count(self, error: str | None, abstain: bool) -> None:
        self.images += 1
        self.unreadable += error is not None
        self.abstained += abstain and error is None


def predict_to_file(
    predictor: Predictor,
    model_folder: Path,
    paths: PathList,
    out: Path,
    settings: Settings,
    workers: int,
    advance: Advance,
    stop: StopRequest,
) -> Tally:
    """Write ``out``, its format by its ending. A signal leaves the journal, and the same call goes on with it."""
    write = writer_for(out)
    if out.is_dir():
        raise RunError(f"{one_line(out)!r} is a folder: give --out a file.")
    identity = identity_of(model_folder, paths, asdict(settings))
    with open_journal(out, identity, settings.batch_size) as journal:
        tally = Tally(resumed_at=journal.done)
        advance(journal.done)
        if journal.done < len(paths):  # slicing copies: only what remains is handed on
            remaining = paths[journal.done :] if journal.done else paths
            for batch in _batches(predictor, remaining, settings, workers):
                with _writing(out):
                    journal.append(as_row(prediction, settings.top) for prediction in batch)
                advance(len(batch))
                stop.check()
        for row in journal.rows():
            tally.count(row["error"], row["abstain"])
        with _writing(out):
            write_atomically(out, lambda temporary: write(temporary, journal.rows(), columns(settings.top)))
    return tally


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """A full disk is one line; what is in the journal stays."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{one_line(out)!r} cannot be written: {one_line(error.strerror or error)}.") from None


def predict_to_stream(
    predictor: Predictor,
    paths: PathList,
    file: IO[str],
    settings: Settings,
    workers: int,
    advance: Advance,
    stop: StopRequest,
) -> Tally:
    """CSV to an open stream, flushed after each batch for whoever reads the other end."""
    tally = Tally()
    writer = CsvWriter(file, columns(settings.top))
    for batch in _batches(predictor, paths, settings, workers):
        writer.write(as_row(prediction, settings.top) for prediction in batch)
        file.flush()
        for prediction in batch:
            tally.count(prediction.error, prediction.abstain)
        advance(len(batch))
        stop.check()
    return tally


def _batches(predictor: Predictor, paths: PathList, settings: Settings, workers: int) -> Iterator[list[Prediction]]:
    return predictor.stream_batches(paths, settings.batch_size, workers, settings.abstain_below)
