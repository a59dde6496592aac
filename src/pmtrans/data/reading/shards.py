"""Read shards: WebDataset tar files and Parquet files with the images in them, here or at any address of fsspec."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pmtrans.addresses import as_address, expand, is_pattern, is_remote
from pmtrans.data.reading.left_out import LeftOut
from pmtrans.data.reading.listing import Row
from pmtrans.data.reading.parquet_images import PARQUET, rows_of_parquet
from pmtrans.data.reading.shard_index import ShardIndex, shard_indexes
from pmtrans.errors import DataError, one_line
from pmtrans.texts import MAX_IMAGES, TextError, read_json

TAR = ".tar"
PACK = "pack.json"  # what ``pmtrans pack`` writes last: a folder that has it is read as its shards


def is_shards(path: Path) -> bool:
    """Whether a path is a tar file, a folder that ``pack`` wrote, a pattern of shards, or an address."""
    if is_remote(path):
        return True
    suffix = path.suffix.lower()
    if is_pattern(path):
        return suffix in (TAR, *PARQUET)
    return (suffix == TAR and path.is_file()) or (path / PACK).is_file()


def read_shards(
    path: Path,
    labels_required: bool,
    path_column: str | None,
    label_column: str | None,
    left_out: LeftOut | None = None,
) -> list[Row]:
    """The rows of all shards that ``path`` stands for, one after the other, each in its own order."""
    shards = packed_shards(path) if (path / PACK).is_file() else expand(path)
    unknown = [shard for shard in shards if os.path.splitext(shard)[1].lower() not in (TAR, *PARQUET)]
    if unknown:
        raise DataError(f"{one_line(unknown[0])}: not a shard (.tar, {', '.join(PARQUET)})")
    tars = [shard for shard in shards if shard.lower().endswith(TAR)]
    rows = rows_of_tars(tars, labels_required, label_column, left_out)
    for shard in shards:
        if not shard.lower().endswith(TAR):
            rows += rows_of_parquet(shard, labels_required, path_column, label_column)
    if not rows:
        raise DataError(f"{one_line(as_address(path))}: no image in it")
    if len(rows) > MAX_IMAGES:
        raise DataError(f"{one_line(as_address(path))}: more than {MAX_IMAGES} images: divide them")
    return [Row(number, row.path, row.label) for number, row in enumerate(rows, start=1)]


def rows_of_tars(
    shards: list[str], labels_required: bool, label_key: str | None, left_out: LeftOut | None = None
) -> list[Row]:
    """The rows of tar files; an image without a label that needs one, and a key in two shards, are one line."""
    indexes = shard_indexes(shards, label_key)
    _refuse_equal_keys(shards, indexes)
    rows: list[Row] = []
    for shard, index in zip(shards, indexes, strict=True):
        if labels_required and None in index.labels:
            missing = [name for name, label in zip(index.names, index.labels, strict=True) if label is None]
            raise DataError(
                f"{one_line(shard)}: {len(missing)} images have no label, such as {one_line(missing[0], 80)}: "
                "a source needs NAME.cls or NAME.json beside each NAME.jpg"
            )
        if left_out is not None:
            left_out.update(index.left_out)
        rows += [Row(0, *pair) for pair in zip(index.paths(shard), index.labels, strict=True)]
    return rows


def _refuse_equal_keys(shards: list[str], indexes: list[ShardIndex]) -> None:
    holder: dict[str, int] = {}
    for number, index in enumerate(indexes):
        before = len(holder)
        holder.update(dict.fromkeys(index.names, number))
        if len(holder) < before + len(index.names):
            twice = next(
                (name, first) for first in range(number) for name in indexes[first].names if holder[name] == number
            )
            raise DataError(
                f"{one_line(shards[twice[1]])} and {one_line(shards[number])}: both hold {one_line(twice[0], 80)}: "
                "each image needs a name of its own"
            )


def packed_shards(folder: Path) -> list[str]:
    """The shards of a folder that ``pmtrans pack`` wrote, by its list of them."""
    try:
        names = read_json(folder / PACK, dict[str, object])["shards"]
        if not isinstance(names, list) or not all(
            isinstance(name, str) and os.path.basename(name) == name for name in names
        ):
            raise TextError("shards: not a list of file names")
    except (OSError, TextError, KeyError, json.JSONDecodeError) as error:
        raise DataError(f"{one_line(folder / PACK)}: cannot be read ({one_line(error, 100)})") from None
    return [str(folder / str(name)) for name in names]
