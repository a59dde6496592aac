"""Parquet files that hold the bytes of images, as the Hugging Face hub stores datasets.

Parquet compresses many rows together, so no image can be read alone. The images are copied once, bytes unchanged, to a
tar shard in the user's cache, from where they are read like those of any shard; the Parquet file is not changed. An
image is named by its content and its row: the order of a target depends on no order of rows, which may be of classes.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from pmtrans.addresses import absolute
from pmtrans.data.image import is_image_name
from pmtrans.data.reading.listing import Row
from pmtrans.data.reading.parquet_file import Parquet, label_in, opened_parquet
from pmtrans.data.reading.shard_index import LABEL_KEYS, index_folder, one_at_a_time, shard_indexes, shard_version
from pmtrans.data.tar_writer import add_file, file_stem, tar_file
from pmtrans.errors import DataError, nearest, one_line
from pmtrans.files import write_atomically
from pmtrans.texts import TextError, parse_json

PARQUET = (".parquet", ".pq")
_FORMAT = "2"  # of the copies
MANY_EMPTY = 1000  # rows without an image: fewer are unreadable images among others
_SUFFIXES = ((b"\xff\xd8", ".jpg"), (b"\x89PNG", ".png"), (b"GIF8", ".gif"), (b"BM", ".bmp"), (b"II*", ".tif"))


def rows_of_parquet(
    address: str, labels_required: bool, image_column: str | None, label_column: str | None
) -> list[Row]:
    """The images of a Parquet file, here or elsewhere, with their labels."""
    version = shard_version(address)
    with opened_parquet(address) as opened:
        image = bytes_column(opened, image_column)
        header = opened.names
        if image is None:
            raise DataError(
                f"{one_line(address)}: no column of image bytes; its columns are {one_line(', '.join(header))}"
            )
        label = label_column or next((name for name in LABEL_KEYS if name in header), None)
        if label is not None and label not in header:
            columns = f"{one_line(', '.join(header))}.{nearest(label, header)}"
            raise DataError(f"{one_line(address)}: no column {label!r} (label_column); its columns are {columns}")
        if label is None and labels_required:
            raise DataError(f"{one_line(address)}: no label column; its columns are {one_line(', '.join(header))}")
        shard = _shard_of(opened, version, image, label)
    index = shard_indexes([str(shard)])[0]
    if labels_required and None in index.labels:
        row = 1 + int(_row_number(index.names[index.labels.index(None)]))
        raise DataError(f"{one_line(address)}: {index.labels.count(None)} rows have no label, such as row {row}")
    return [Row(0, *pair) for pair in zip(index.paths(str(shard)), index.labels, strict=True)]


def bytes_column(opened: Parquet, given: str | None) -> str | None:
    """The column that holds the bytes of images: the given one, or the first that does; None where it does not."""
    names = [given] if given is not None else opened.names
    return next((name for name in names if name in opened.names and _holds_bytes(opened, name)), None)


def _holds_bytes(opened: Parquet, name: str) -> bool:
    import pyarrow

    kind = opened.kind(name)
    if pyarrow.types.is_struct(kind):
        return "bytes" in {field.name for field in kind}
    if not (pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind)):
        return False
    seen = 0
    for batch in opened.batches([name]):
        value = next((value for value in batch.column(0).to_pylist() if value is not None), None)
        if value is not None:
            return not is_image_name(os.fsdecode(value[-100:]))  # the bytes of a path: a table
        seen += len(batch)
        if seen >= MANY_EMPTY:
            break
    return False


def _shard_of(opened: Parquet, version: str, image: str, label: str | None) -> Path:
    """The tar shard in the cache that holds the images of this very file, made if it is not there."""
    parts = (_FORMAT, absolute(opened.address), version, image, label or "")
    digest = hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    stem = file_stem(os.path.splitext(os.path.basename(opened.address))[0])
    shard = index_folder() / f"{stem}-{digest}.tar"
    if not shard.is_file():
        with one_at_a_time(shard.with_suffix(".making")):
            if not shard.is_file():
                write_atomically(shard, lambda temporary: _write(temporary, opened, stem, image, label))
        shard.with_suffix(".making").unlink(missing_ok=True)
    return shard


def _write(path: Path, opened: Parquet, stem: str, image: str, label: str | None) -> None:
    names = _class_names(opened, label)
    columns = [image] if label is None or label == image else [image, label]
    row = empty = 0
    with tar_file(path) as shard:
        for batch in opened.batches(columns):
            labels = [None] * len(batch) if label is None else batch.column(label).to_pylist()
            for value, of_class in zip(batch.column(image).to_pylist(), labels, strict=True):
                content = (value.get("bytes") if isinstance(value, dict) else value) or b""
                key = f"{stem}/{hashlib.blake2b(content, digest_size=8).hexdigest()}-{row:08d}"
                suffix = next((suffix for start, suffix in _SUFFIXES if content.startswith(start)), ".png")
                add_file(shard, key + suffix, content)
                row += 1
                try:
                    text = label_in(_named(of_class, names))
                except DataError as error:
                    raise DataError(f"{one_line(opened.address)}: row {row}: {error}") from None
                if text is not None:
                    add_file(shard, f"{key}.cls", text.encode("utf-8", "surrogateescape"))
                empty += not content
            if empty >= MANY_EMPTY and 2 * empty > row:
                raise DataError(
                    f"{one_line(opened.address)}: {empty} of the first {row} rows have no image in {image!r}: "
                    "remove them"
                )


def _named(label: Any, names: list[str]) -> Any:
    """A number as its name where classes have names; -1 is no label."""
    if not names or not isinstance(label, int) or label == -1:
        return label
    if not 0 <= label < len(names):
        raise DataError(f"{label} is not one of the {len(names)} classes that it names")
    return names[label]


def _row_number(name: str) -> str:
    return os.path.splitext(name)[0].rpartition("-")[2]


def _class_names(opened: Parquet, label: str | None) -> list[str]:
    """The names of numbered classes that the ``datasets`` library writes beside the schema."""
    described = (opened.file.schema_arrow.metadata or {}).get(b"huggingface")
    if described is None:
        return []
    try:
        names = parse_json(described)["info"]["features"][label]["names"]
    except TextError as error:
        raise DataError(f"{one_line(opened.address)}: its description by Hugging Face: {error}") from None
    except (KeyError, TypeError):
        return []
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []
