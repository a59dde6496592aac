"""Read a Hugging Face dataset saved on disk (``Dataset.save_to_disk``); needs the ``huggingface`` extra.

Its images are usually inside Arrow files, but this package works on paths. So they are extracted once, bytes unchanged,
to the cache (``$PMTRANS_CACHE`` or ``~/.cache/pmtrans``), in a folder named by their checksum: what a received dataset
says of itself (its fingerprint) names no folder. The dataset itself is not changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pmtrans.data.image import EXTENSIONS
from pmtrans.data.reading.listing import MalformedLines, Row, canonical_label
from pmtrans.errors import DataError, UserError, one_line
from pmtrans.files import regular
from pmtrans.machine import cache_folder
from pmtrans.texts import read_json

_DESCRIPTIONS = ("state.json", "dataset_info.json")
_LABEL_COLUMNS = ("label", "labels", "class", "category", "target", "fine_label")


def is_huggingface_dataset(folder: Path) -> bool:
    """Whether the folder was written by ``save_to_disk``."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def read_huggingface_dataset(
    folder: Path, image_column: str | None, label_column: str | None, labels_required: bool
) -> list[Row]:
    """The rows of a dataset on disk, with its images extracted to files."""
    try:
        import datasets
    except ImportError:
        raise DataError(
            f"{one_line(folder)}: a Hugging Face dataset needs an extra: pip install 'pmtrans[huggingface]'"
        ) from None
    with _explained(folder):
        for file in folder.rglob("*"):
            if not file.is_dir():
                regular(file)
        for name in _DESCRIPTIONS:
            if (folder / name).is_file():
                read_json(folder / name)
        dataset = datasets.load_from_disk(str(folder))
    if isinstance(dataset, datasets.DatasetDict):
        raise DataError(f"{one_line(folder)}: contains the splits {', '.join(dataset)}: give the folder of one of them")
    features = dataset.features
    image_column = image_column or next(
        (name for name, feature in features.items() if isinstance(feature, datasets.Image)), ""
    )
    if not isinstance(features.get(image_column), datasets.Image):
        raise DataError(f"{one_line(folder)}: no image column; its columns are {one_line(', '.join(features))}")
    label_column = label_column or next((name for name in _LABEL_COLUMNS if name in features), None)
    if labels_required if label_column is None else label_column not in features:
        raise DataError(f"{one_line(folder)}: no label column; its columns are {one_line(', '.join(features))}")

    with _explained(folder):
        labels = _labels(dataset, label_column)
    if labels_required and None in labels:
        missing = [(i, "no label") for i, label in enumerate(labels, start=1) if label is None]
        raise MalformedLines(folder, missing, unit="row")
    with _explained(folder):  # the Arrow column itself: the dataset would decode each image
        images = _Images(dataset.data.column(image_column))
        paths = images.write(cache_folder() / "datasets")
    return [Row(i, *row) for i, row in enumerate(zip(paths, labels, strict=True), start=1)]


def _labels(dataset: Any, column: str | None) -> list[str | None]:
    if column is None:
        return [None] * len(dataset)
    names = getattr(dataset.features[column], "names", None)
    values = list(dataset[column])
    if names is None:
        return [None if value is None else canonical_label(str(value)) for value in values]
    return [None if value is None or value < 0 else names[value] for value in values]


class _Images:
    """The cells of a column of images: bytes with a name, or a path alone."""

    def __init__(self, column: Any) -> None:
        self.column = column

    def write(self, cache: Path) -> list[str]:
        """The path of each, those with bytes extracted to a folder of the cache unless it is there already."""
        home = cache / self._checksum()
        if not home.exists():
            cache.mkdir(parents=True, exist_ok=True)
            staging = Path(tempfile.mkdtemp(dir=cache))
            try:
                for name, content, _ in self:
                    if content is not None:
                        (staging / name).write_bytes(content)
                with contextlib.suppress(OSError):  # another process was faster, with the same files
                    os.replace(staging, home)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
        return [str(path) if content is None else str(home / name) for name, content, path in self]

    def _checksum(self) -> str:
        digest = hashlib.sha256()
        for name, content, _ in self:
            if content is not None:
                digest.update(f"{name} {len(content)} ".encode() + content)
        return digest.hexdigest()

    def __iter__(self) -> Iterator[tuple[str, bytes | None, str | None]]:
        """(name of its file, bytes, path as it was saved); decoders use the content, not the extension."""
        for number, cell in enumerate(self.column):
            image = cell.as_py()
            suffix = Path(image["path"] or "").suffix.lower()
            yield f"{number:08d}{suffix if suffix in EXTENSIONS else '.png'}", image["bytes"], image["path"]


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Whatever a damaged or forged dataset makes its library raise is one line."""
    try:
        yield
    except DataError:
        raise
    except UserError as error:
        raise DataError(f"{one_line(folder)}: cannot be read as a dataset: {error}") from None
    except (MemoryError, PermissionError):
        raise
    except Exception as error:
        why = one_line(f"{type(error).__name__}: {error}", 150)
        raise DataError(f"{one_line(folder)}: cannot be read as a dataset: {why}") from None
