"""Predictions as rows of CSV, JSON lines or Parquet, written in constant memory."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

from pmtrans.errors import DataError, one_line
from pmtrans.inference.prediction import Prediction

Row = dict[str, Any]
_ROW_GROUP = 10_000  # rows of a Parquet row group


def columns(top: int, is_open: bool = False) -> list[str]:
    """``path,class,probability,entropy,abstain,error``, then ``class_2,probability_2`` and so on up to ``top``.

    ``unknown_score`` comes last, if the model knows images of no class (``is_open``).
    """
    more = [f"{name}_{rank}" for rank in range(2, top + 1) for name in ("class", "probability")]
    last = ["unknown_score"] if is_open else []
    return ["path", "class", "probability", "entropy", "abstain", "error", *more, *last]


def as_row(prediction: Prediction, top: int, is_open: bool = False) -> Row:
    """One prediction by column name; numbers are rounded to six decimals."""
    row: Row = dict.fromkeys(columns(top, is_open))
    row |= {
        "path": prediction.path,
        "class": prediction.label,
        "probability": _rounded(prediction.probability),
        "entropy": _rounded(prediction.entropy),
        "abstain": prediction.abstain,
        "error": prediction.error,
    }
    for rank, (name, probability) in enumerate(prediction.top(top)[1:], start=2):
        row |= {f"class_{rank}": name, f"probability_{rank}": _rounded(probability)}
    if is_open:
        row["unknown_score"] = _rounded(prediction.unknown_score)
    return row


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def writer_for(out: Path) -> Callable[[Path, Iterable[Row], list[str]], None]:
    """The writer for the suffix of ``out``; a missing extra is an error now, not after an hour of predictions."""
    suffix = out.suffix.lower()
    if suffix not in _WRITERS:
        raise DataError(f"{one_line(out)}: unknown suffix {suffix!r}: the format is one of {', '.join(_WRITERS)}")
    if suffix in (".parquet", ".pq"):
        _parquet(out)
    return _WRITERS[suffix]


class CsvWriter:
    """Rows to an open text file, the header first."""

    def __init__(self, file: IO[str], names: list[str]) -> None:
        self._writer = csv.DictWriter(file, names, lineterminator="\n")
        self._writer.writeheader()

    def write(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._writer.writerow(row | {"abstain": str(row["abstain"]).lower()})


def _write_csv(path: Path, rows: Iterable[Row], names: list[str]) -> None:
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        CsvWriter(file, names).write(rows)


def _write_json_lines(path: Path, rows: Iterable[Row], names: list[str]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")  # ASCII: keeps names that are not UTF-8


def _write_parquet(path: Path, rows: Iterable[Row], names: list[str]) -> None:
    pyarrow, parquet = _parquet(path)
    number = pyarrow.float64()
    kinds = {"probability": number, "entropy": number, "abstain": pyarrow.bool_(), "unknown": number}
    schema = pyarrow.schema([(name, kinds.get(name.split("_")[0], pyarrow.string())) for name in names])
    remaining = iter(rows)
    with path.open("wb") as file, parquet.ParquetWriter(file, schema) as writer:  # a path would have to be UTF-8
        while group := list(itertools.islice(remaining, _ROW_GROUP)):
            for row in group:  # Parquet's strings are UTF-8; names of files and of class folders may be any bytes
                texts = {name: value for name, value in row.items() if isinstance(value, str)}
                row |= {name: value.encode("utf-8", "backslashreplace").decode() for name, value in texts.items()}
            writer.write_table(pyarrow.Table.from_pylist(group, schema))


def _parquet(path: Path) -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise DataError(f"{one_line(path)}: Parquet needs an extra: pip install 'pmtrans[parquet]'") from None
    return pyarrow, parquet


_WRITERS = {
    ".csv": _write_csv,
    ".jsonl": _write_json_lines,
    ".ndjson": _write_json_lines,
    ".parquet": _write_parquet,
    ".pq": _write_parquet,
}
