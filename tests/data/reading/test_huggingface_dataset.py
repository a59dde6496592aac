"""A Hugging Face dataset on disk is a domain like any other; without the extra, one line says so."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pytest

from hostile_images import encoded, noise
from pmtrans.data.image import load_image
from pmtrans.data.reading.read import read_source, read_target
from pmtrans.errors import DataError


def write_dataset(folder: Path, seeds: range = range(4), fingerprint: str = "0123456789abcdef") -> Any:
    """Images of noise in two classes, saved."""
    images = [{"bytes": encoded(noise(seed), "PNG"), "path": None} for seed in seeds]
    names = datasets.ClassLabel(names=["mug", "bike"])
    features = datasets.Features({"image": datasets.Image(), "label": names})
    labels = [1, 0, 0, 1]
    table = pyarrow.table({"image": images, "label": labels}).cast(features.arrow_schema)
    # A given fingerprint: hashing a table is broken in some pairs of versions of datasets and pyarrow.
    dataset = datasets.Dataset(table, datasets.DatasetInfo(features=features), fingerprint=fingerprint)
    dataset.save_to_disk(folder)
    return dataset


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMTRANS_CACHE", str(tmp_path / "cache"))


def test_without_the_extra_one_line_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"pip install 'pmtrans\[huggingface\]'"):
        read_source(tmp_path)


def test_images_and_class_names_come_out(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "saved")
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


def test_a_fingerprint_of_a_received_dataset_names_no_folder(tmp_path: Path) -> None:
    write_dataset(tmp_path / "saved")
    state = tmp_path / "saved" / "state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "_fingerprint": "/../../../escaped"}))
    source = read_source(tmp_path / "saved")
    assert not (tmp_path / "escaped").exists()
    assert {Path(path).parent.parent for path in source.paths} == {tmp_path / "cache" / "datasets"}
    assert load_image(source.paths[0]).tobytes() == noise(0).tobytes()


def test_datasets_of_one_name_and_fingerprint_are_told_apart_by_their_images(tmp_path: Path) -> None:
    write_dataset(tmp_path / "a" / "saved")
    write_dataset(tmp_path / "b" / "saved", seeds=range(4, 8))
    read_source(tmp_path / "a" / "saved")
    for seed, path in enumerate(read_source(tmp_path / "b" / "saved").paths, start=4):
        assert load_image(path).tobytes() == noise(seed).tobytes()


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("state.json", "{}"),
        ("state.json", "[" * 100_000),
        ("state.json", '{"_data_files": [{"filename": "elsewhere.arrow"}], "_fingerprint": "a", "_split": null}'),
        ("dataset_info.json", "not JSON"),
        ("dataset_info.json", '{"features": {"image": {"_type": "Nothing"}}}'),
        ("data-00000-of-00001.arrow", "not Arrow"),
    ],
)
def test_a_damaged_dataset_is_one_line(file: str, text: str, tmp_path: Path) -> None:
    write_dataset(tmp_path / "saved")
    (tmp_path / "saved" / file).write_text(text)
    with pytest.raises(DataError, match="saved: cannot be read as a dataset") as caught:
        read_source(tmp_path / "saved")
    assert "\n" not in str(caught.value)


def test_a_pipe_in_a_dataset_is_one_line(tmp_path: Path) -> None:
    write_dataset(tmp_path / "saved")
    (tmp_path / "saved" / "data-00000-of-00001.arrow").unlink()
    os.mkfifo(tmp_path / "saved" / "data-00000-of-00001.arrow")
    with pytest.raises(DataError, match="not a regular file"):
        read_source(tmp_path / "saved")


def test_a_label_beyond_the_class_names_is_one_line(tmp_path: Path) -> None:
    write_dataset(tmp_path / "saved")
    info = tmp_path / "saved" / "dataset_info.json"
    told = json.loads(info.read_text())
    told["features"]["label"]["names"] = ["mug"]
    info.write_text(json.dumps(told))
    with pytest.raises(DataError, match="cannot be read as a dataset"):
        read_source(tmp_path / "saved")


def test_an_image_that_is_elsewhere_on_the_network_is_refused(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "saved")
    images = [{"bytes": None, "path": "http://127.0.0.1:9/image.png"}] * 4
    table = pyarrow.table({"image": images, "label": [1, 0, 0, 1]}).cast(dataset.features.arrow_schema)
    with pyarrow.ipc.new_stream(tmp_path / "saved" / "data-00000-of-00001.arrow", table.schema) as stream:
        stream.write_table(table)
    with pytest.raises(DataError, match="is at another address"):
        read_source(tmp_path / "saved")
