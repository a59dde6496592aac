"""Read a Hugging Face dataset saved on disk (``Dataset.save_to_disk``); needs the ``huggingface`` extra.

Its images are usually inside Arrow files, but this package works on paths. So they are extracted once, bytes unchanged,
to the cache (``$PMTRANS_CACHE`` or ``~/.cache/pmtrans``), in a folder named by the dataset's fingerprint; the dataset
itself is not changed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from pmtrans.data.image import EXTENSIONS
from pmtrans.data.reading.listing import MalformedLines, Row, canonical_label
from pmtrans.errors import DataError, one_line
from pmtrans.machine import cache_folder

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

    labels = _labels(dataset, label_column)
    if labels_required and None in labels:
        missing = [(i, "no label") for i, label in enumerate(labels, start=1) if label is None]
        raise MalformedLines(folder, missing, unit="row")
    paths = _write_images(folder, dataset, image_column)
    return [Row(i, *row) for i, row in enumerate(zip(paths, labels, strict=True), start=1)]


def _labels(dataset: Any, column: str | None) -> list[str | None]:
    if column is None:
        return [None] * len(dataset)
    names = getattr(dataset.features[column], "names", None)
    values = list(dataset[column])
    if names is None:
        return [None if value is None else canonical_label(str(value)) for value in values]
    return [None if value is None or value < 0 else names[value] for value in values]


def _write_images(folder: Path, dataset: Any, column: str) -> list[str]:
    cache = cache_folder() / "datasets"
    home = cache / f"{folder.resolve().name}-{dataset._fingerprint}"
    cache.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=cache))
    is_new = not home.exists()
    paths = []
    try:
        # Read the Arrow column directly: the dataset would decode each image.
        for number, cell in enumerate(dataset.data.column(column)):
            image = cell.as_py()
            if image["bytes"] is None:
                paths.append(str(image["path"]))
                continue
            suffix = Path(image["path"] or "").suffix.lower()
            # decoders use the content, not the extension
            name = f"{number:08d}{suffix if suffix in EXTENSIONS else '.png'}"
            if is_new:
                (staging / name).write_bytes(image["bytes"])
            paths.append(str(home / name))
        if is_new:
            with contextlib.suppress(OSError):  # another process was faster, with the same files
                os.replace(staging, home)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return paths
