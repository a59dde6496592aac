"""A Hugging Face dataset on disk is a domain like any other; without the extra, one line says so."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from hostile_images import encoded, noise
from pmtrans.data.image import load_image
from pmtrans.data.reading.read import read_source, read_target
from pmtrans.errors import DataError

needs_datasets = pytest.mark.skipif(
    importlib.util.find_spec("datasets") is None, reason="the extra 'huggingface' is not installed"
)


def test_without_the_extra_one_line_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"pip install 'pmtrans\[huggingface\]'"):
        read_source(tmp_path)


@needs_datasets
def test_images_and_class_names_come_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    import pyarrow

    monkeypatch.setenv("PMTRANS_CACHE", str(tmp_path / "cache"))
    images = [{"bytes": encoded(noise(seed), "PNG"), "path": None} for seed in range(4)]
    names = datasets.ClassLabel(names=["mug", "bike"])
    features = datasets.Features({"image": datasets.Image(), "label": names})
    table = pyarrow.table({"image": images, "label": [1, 0, 0, 1]}).cast(features.arrow_schema)
    # A given fingerprint: hashing a table is broken in some pairs of versions of datasets and pyarrow.
    dataset = datasets.Dataset(table, datasets.DatasetInfo(features=features), fingerprint="0123456789abcdef")
    dataset.save_to_disk(tmp_path / "saved")
    source = read_source(tmp_path / "saved")
    assert source.classes == ("bike", "mug")
    assert [source.classes[label] for label in source.labels] == ["bike", "mug", "mug", "bike"]
    for seed, path in enumerate(source.paths):
        assert load_image(path).tobytes() == noise(seed).tobytes()
    assert read_source(tmp_path / "saved") == source
    target = read_target(tmp_path / "saved", ("mug", "bike"))
    assert target.labelled is not None
    assert target.labelled.labels == (1, 0, 0, 1)
    datasets.DatasetDict({"train": dataset}).save_to_disk(tmp_path / "splits")
    with pytest.raises(DataError, match="contains the splits train"):
        read_source(tmp_path / "splits")
