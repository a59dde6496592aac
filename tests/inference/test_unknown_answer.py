"""The answer ``unknown`` in every way out of a model folder: files, the service, exported graphs."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image

from pmtrans.errors import ModelError
from pmtrans.files import write_json
from pmtrans.inference.export.images import generated_images
from pmtrans.inference.export.onnx_file import OnnxModel
from pmtrans.inference.export.program import TorchProgram
from pmtrans.inference.export.write import export_model
from pmtrans.inference.inputs import gather
from pmtrans.inference.predict_files import PredictOptions, predict_to_file
from pmtrans.inference.predictor import load
from pmtrans.run.model_folder import load_model
from pmtrans.run.model_notes import ClassBalance, annotate_model
from pmtrans.selection.unknown_threshold import UnknownThreshold
from pmtrans.serving.app import create_app
from pmtrans.signals import StopRequest

BALANCE = ClassBalance((0.2, 0.3, 0.5), (0.2, 0.3, 0.5), (0.6, 0.3, 0.1))


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    random = np.random.default_rng(0)
    paths = [tmp_path / f"{number}.png" for number in range(6)]
    for path in paths:
        Image.fromarray(random.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(path)
    return paths


@pytest.fixture
def model(saved_model: Callable[..., Path], pictures: list[Path]) -> Path:
    """A model whose threshold lies in the middle of what it says of these images."""
    folder = saved_model()
    predictor = load(folder, "cpu")
    images = torch.stack([predictor.transform(Image.open(path)) for path in pictures])
    largest = predictor.logits(images).max(1).values
    annotate_model(folder, BALANCE, UnknownThreshold(-largest.median().item() - 1e-3, 0.7))
    return folder


def by_hand(folder: Path, path: Path) -> float:
    predictor = load(folder, "cpu")
    largest = predictor.logits(predictor.transform(Image.open(path))[None]).max().item()
    stored = json.loads((folder / "config.json").read_text())["pmtrans"]["unknown"]
    return 1 / (1 + math.exp((largest + stored["threshold"]) / stored["scale"]))


def test_a_file_of_predictions_has_the_score_as_its_last_column(
    model: Path, pictures: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "broken.png").write_bytes(b"nothing")
    paths = gather([str(path) for path in (*pictures, tmp_path / "broken.png")], io.BytesIO(), None)
    out = tmp_path / "out.csv"
    options = PredictOptions(batch_size=4, top=2)
    predict_to_file(load(model, "cpu"), model, paths, out, options, 0, lambda images: None, StopRequest())
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert list(rows[0])[-1] == "unknown_score"
    assert {row["class"] for row in rows[:-1]} > {"unknown"}
    for row, path in zip(rows[:-1], pictures, strict=True):
        assert float(row["unknown_score"]) == pytest.approx(by_hand(model, path), abs=1e-4)
        assert (row["class"] == "unknown") == (float(row["unknown_score"]) > 0.5)
    assert rows[-1]["unknown_score"] == ""


def test_the_service_answers_unknown(model: Path, pictures: list[Path]) -> None:
    with TestClient(create_app(load(model, "cpu")), base_url="http://127.0.0.1") as client:
        for path in pictures:
            (answer,) = client.post("/predict", files={"images": path.read_bytes()}).json()["predictions"]
            assert answer["unknown_score"] == pytest.approx(by_hand(model, path), abs=1e-4)
            assert (answer["class"] == "unknown") == (answer["unknown_score"] > 0.5)


@pytest.mark.parametrize("form", ["onnx", "torch"])
def test_an_exported_graph_has_the_score_as_a_third_output(form: str, model: Path, tmp_path: Path) -> None:
    trained = load_model(model)
    assert trained.unknown is not None
    out = tmp_path / {"onnx": "model.onnx", "torch": "model.pt2"}[form]
    images = generated_images()
    export_model(trained, out, form, images)  # type: ignore[arg-type]
    runtime = OnnxModel(out) if form == "onnx" else TorchProgram(out)
    inputs = torch.stack([load(model, "cpu").transform(image) for image in images])
    found = runtime(inputs.numpy()).unknown_scores
    assert found is not None
    largest = trained.model(inputs).max(1).values.tolist()
    threshold, scale = trained.unknown.threshold, trained.unknown.scale
    expected = [1 / (1 + math.exp((value + threshold) / scale)) for value in largest]
    assert found.tolist() == pytest.approx(expected, abs=1e-4)


def test_notes_survive_the_model_folder_and_can_be_taken_back(model: Path) -> None:
    trained = load_model(model)
    assert trained.balance == BALANCE
    annotate_model(model, None, None)
    assert load_model(model).balance is None
    assert load_model(model).unknown is None
    with pytest.raises(ModelError, match="no class balance"):
        load(model, "cpu", prior="target")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("prior", {"own": [0.5, 0.5], "source": [0.5, 0.5], "target": [0.5, 0.5]}),
        ("prior", {"own": [0.0, 0.5, 0.5], "source": [0.2, 0.3, 0.5], "target": [0.2, 0.3, 0.5]}),
        ("prior", {"own": [0.2, 0.3, 0.5], "source": [0.2, 0.3, 7.0], "target": [0.2, 0.3, 0.5]}),
        ("prior", [1, 2]),
        ("unknown", {"threshold": 0.0, "scale": 0.0}),
        ("unknown", {"threshold": "high", "scale": 1.0}),
    ],
)
def test_notes_that_cannot_be_are_refused_in_one_line(key: str, value: object, model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    config["pmtrans"][key] = value
    del config["pmtrans"]["checksum"]
    write_json(model / "config.json", config)
    with pytest.raises(ModelError) as caught:
        load_model(model)
    assert "\n" not in str(caught.value)
