"""Open a Parquet file within limits: a few kilobytes of it can stand for millions of rows or gigabytes of values.

Rows and bytes are compared with the size of the file itself, from the metadata before any value is read, and again
while values are read, as metadata can be forged.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pmtrans.addresses import open_filesystem, reached
from pmtrans.errors import DataError, UserError, one_line
from pmtrans.files import WriteError
from pmtrans.texts import MAX_IMAGES, is_text

FREE_ROWS, ROWS_PER_BYTE = 1_000_000, 4
FREE_BYTES, EXPANSION = 64_000_000, 50  # values may be so many times as large as the file
MAX_ROW_GROUPS = 100_000
_IN_MEMORY = 1 << 27  # bytes
_MOST_ROWS = 64  # read at a time, of images


@dataclass(frozen=True)
class Parquet:
    """An open Parquet file of ``size`` bytes, whose columns have names of their own."""

    address: str
    file: Any  # pyarrow.parquet.ParquetFile
    size: int

    @property
    def names(self) -> list[str]:
        """The columns, in order."""
        return list(self.file.schema_arrow.names)

    def kind(self, column: str) -> Any:
        """The Arrow type of a column."""
        return self.file.schema_arrow.field(column).type

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """The rows of these columns, so few at a time that equal values, stored once, do not fill the memory."""
        largest = self._refuse_expansion(columns)
        rows = max(1, min(_MOST_ROWS, _IN_MEMORY // max(1, largest)))
        yield from self._counted(self.file.iter_batches(rows, columns=list(columns)))

    def texts(self, columns: Sequence[str]) -> list[list[Any]]:
        """The values of whole columns of a table; equal ones are stored once here too."""
        from pyarrow import parquet

        self._refuse_expansion(columns)
        leaves = {self.file.schema.column(number).path for number in range(self.file.metadata.num_columns)}
        flat = [name for name in columns if name in leaves]  # a column of lists or structures has no name of its own
        opened = parquet.ParquetFile(self.address, metadata=self.file.metadata, read_dictionary=flat)
        values: list[list[Any]] = [[] for _ in columns]
        with opened:
            for batch in self._counted(opened.iter_batches(columns=list(columns))):
                for name, found in zip(columns, values, strict=True):
                    found += _as_python(batch.column(name))
        return values

    def _refuse_expansion(self, columns: Sequence[str]) -> int:
        """The bytes of the largest column of a row group, where all of them together are not too many."""
        metadata = self.file.metadata
        chosen = [
            number
            for number in range(metadata.num_columns)
            if self.file.schema.column(number).path.partition(".")[0] in columns
        ]
        sizes = [
            metadata.row_group(group).column(number).total_uncompressed_size
            for group in range(metadata.num_row_groups)
            for number in chosen
        ]
        self._refuse_bytes(sum(sizes))
        return max(sizes, default=0)

    def _counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        read = 0
        for batch in batches:
            read += batch.nbytes
            self._refuse_bytes(read)
            yield batch

    def _refuse_bytes(self, count: int) -> None:
        if count > FREE_BYTES + EXPANSION * self.size:
            raise DataError(
                f"{one_line(self.address)}: more than {EXPANSION} times as large unpacked as its {self.size} bytes: "
                "write it anew, without repeated or empty images"
            )


def _as_python(column: Any) -> list[Any]:
    import pyarrow

    if not pyarrow.types.is_dictionary(column.type):
        return list(column.to_pylist())
    values = [*column.dictionary.to_pylist(), None]
    return [values[-1 if place is None else place] for place in column.indices.to_pylist()]


def label_in(cell: Any) -> str | None:
    """The label in a cell as text, None where it is empty; what is neither text nor a number is no class name."""
    if cell is None or cell != cell:  # NaN
        return None
    if isinstance(cell, bytes):
        cell = cell.decode("utf-8", "surrogateescape")
    if not isinstance(cell, str | int | float | Decimal) or not is_text(str(cell)):
        raise DataError(f"{one_line(cell, 80)!r} is not a class name")
    return str(cell)


@contextmanager
def opened_parquet(address: str) -> Iterator[Parquet]:
    """The Parquet file at an address; what cannot be read, and a missing extra, is one line."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise DataError(f"{one_line(address)}: Parquet needs an extra: pip install 'pmtrans[parquet]'") from None
    try:
        if "://" in address:
            filesystem, place = open_filesystem(address)
            size = reached(address, lambda: int(filesystem.info(place)["size"]))
            with reached(address, lambda: filesystem.open(place, "rb")) as content:
                yield _within_limits(Parquet(address, parquet.ParquetFile(content), size))
        else:
            if not os.path.isfile(address):
                raise DataError(f"{one_line(address)}: not a regular file")
            with parquet.ParquetFile(address) as file:
                yield _within_limits(Parquet(address, file, os.path.getsize(address)))
    except (UserError, WriteError):  # of the copy
        raise
    except (pyarrow.ArrowException, OSError, OverflowError, UnicodeError) as error:  # a day of the year 5,000,000
        raise DataError(f"{one_line(address)}: cannot be read as Parquet ({one_line(error)})") from None


def _within_limits(opened: Parquet) -> Parquet:
    where, metadata = one_line(opened.address), opened.file.metadata
    if metadata.num_rows > MAX_IMAGES:
        raise DataError(f"{where}: {metadata.num_rows} rows, {MAX_IMAGES} allowed: divide it")
    if metadata.num_rows > FREE_ROWS + ROWS_PER_BYTE * opened.size:
        raise DataError(f"{where}: {metadata.num_rows} rows in {opened.size} bytes cannot be as many images")
    if metadata.num_row_groups > MAX_ROW_GROUPS:
        raise DataError(f"{where}: {metadata.num_row_groups} row groups, {MAX_ROW_GROUPS} allowed: write it anew")
    twice = [name for name, count in Counter(opened.names).items() if count > 1]
    if twice:
        raise DataError(f"{where}: several columns are called {one_line(twice[0], 60)!r}: rename them")
    return opened
