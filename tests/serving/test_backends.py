"""Answers through ONNX Runtime, 8-bit weights and OpenVINO are those of the model; one ONNX graph makes all three."""

from __future__ import annotations

import io
import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import httpx
import numpy as np
import openvino
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image

from pmtrans.errors import RunError
from pmtrans.inference.backends import Backend, RuntimePredictor
from pmtrans.inference.export.images import generated_images
from pmtrans.inference.export.onnx_file import quantise_onnx, write_onnx
from pmtrans.inference.export.openvino_file import ir_from_onnx
from pmtrans.inference.export.parity import ParityError
from pmtrans.inference.export.write import choose_format, export_model
from pmtrans.inference.predictor import load
from pmtrans.run.model_notes import annotate_model
from pmtrans.selection.unknown_threshold import UnknownThreshold
from pmtrans.serving.app import create_app

TEMPERATURE, SCALE = 1.5, 0.7
BOUND = {"onnx": 1e-4, "onnx-int8": 0.25, "openvino": 1e-4}  # as docs/deployment.md states them


@pytest.fixture
def model(saved_model: Callable[..., Path]) -> Path:
    """An open model whose threshold lies in the middle of what it says of the generated images."""
    folder = saved_model(temperature=TEMPERATURE)
    annotate_model(folder, None, UnknownThreshold(-logits_of(folder).max(1).values.median().item() - 1e-3, SCALE))
    return folder


def logits_of(folder: Path) -> torch.Tensor:
    predictor = load(folder, "cpu")
    with torch.no_grad():
        logits: torch.Tensor = predictor.model(
            torch.stack([predictor.transform(image) for image in generated_images()])
        )
    return logits.double()


def encoded(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def by_hand(folder: Path) -> list[dict[str, Any]]:
    """Probability and score of each generated image, from the model's logits."""
    stored = json.loads((folder / "config.json").read_text())["pmtrans"]
    rows = []
    for logits in logits_of(folder).tolist():
        powers = [math.exp(value / stored["temperature"]) for value in logits]
        unknown = 1 / (1 + math.exp((max(logits) + stored["unknown"]["threshold"]) / SCALE))
        best = ("ant", "bee", "cat")[logits.index(max(logits))]
        rows.append({"probability": max(powers) / sum(powers), "unknown_score": unknown, "best": best})
    return rows


def check(answers: list[dict[str, Any]], expected: list[dict[str, Any]], bound: float) -> None:
    for answer, row in zip(answers, expected, strict=True):
        assert answer["unknown_score"] == pytest.approx(row["unknown_score"], abs=bound)
        assert (answer["class"] == "unknown") == (answer["unknown_score"] > 0.5)
        assert answer["probability"] == pytest.approx(row["probability"], abs=bound)
        if bound < 0.01:
            assert answer["top"][0]["class"] == row["best"]


def test_the_service_answers_alike_through_every_backend(model: Path, tmp_path: Path) -> None:
    files = {"onnx": tmp_path / "x.onnx", "onnx-int8": tmp_path / "int8.onnx", "openvino": tmp_path / "x.xml"}
    trained = load(model, "cpu").trained
    write_onnx(files["onnx"], trained, with_preprocessing=False)
    quantise_onnx(files["onnx"], files["onnx-int8"])
    ir_from_onnx(files["onnx"], files["openvino"])
    sent = [("images", encoded(image)) for image in generated_images()]
    expected = by_hand(model)
    assert set(get_args(Backend)) == set(files)
    for backend in get_args(Backend):
        predictor = RuntimePredictor(trained, backend, files[backend])
        with TestClient(create_app(predictor)) as client:
            plain = client.post("/predict", files=sent).json()["predictions"]
            with_maps = client.post("/predict?attention=true", files=sent).json()["predictions"]
        check(plain, expected, BOUND[backend])
        assert {answer["class"] for answer in plain} > {"unknown"}
        for answer in with_maps:  # the map is added, and changes nothing else
            assert sum(answer.pop("attention")["values"]) == pytest.approx(1, abs=1e-5)
        check(with_maps, plain_rows(plain), 1e-6)
    # The 8-bit model is another one, and not torch by another name.
    images = torch.stack([predictor.transform(image) for image in generated_images()])
    eight = RuntimePredictor(trained, "onnx-int8", files["onnx-int8"]).logits(images)
    assert (eight - logits_of(model)).abs().max() > 1e-4


def plain_rows(answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**answer, "best": answer["top"][0]["class"]} for answer in answers]


def test_openvino_opens_the_pair_of_files_and_agrees_and_a_mismatch_leaves_the_old_pair(
    model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "exports" / "model.xml"
    trained = load(model, "cpu").trained
    parity = export_model(trained, out, "openvino", generated_images())
    assert parity.agreeing == parity.images == 8
    assert parity.largest_difference < 1e-4
    assert sorted(path.name for path in out.parent.iterdir()) == ["model.bin", "model.xml"]

    # OpenVINO alone, as somebody else would use it.
    graph = openvino.Core().read_model(out)
    assert json.loads(graph.get_rt_info(["framework", "classes"]).value) == ["ant", "bee", "cat"]
    assert float(graph.get_rt_info(["framework", "temperature"]).value) == TEMPERATURE
    compiled = openvino.Core().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    transform = load(model, "cpu").transform
    inputs = np.stack([transform(image).numpy() for image in generated_images()])
    expected = by_hand(model)
    for batch in (inputs, inputs[:1]):
        found = compiled({"images": batch})
        best = found["probabilities"].max(1).tolist()
        assert best == pytest.approx([row["probability"] for row in expected[: len(batch)]], abs=1e-4)
        scores = found["unknown_score"].tolist()
        assert scores == pytest.approx([row["unknown_score"] for row in expected[: len(batch)]], abs=1e-4)

    # Neither file is replaced unasked, nor by a graph that does not agree.
    with pytest.raises(RunError, match=r"model\.xml' exists"):
        choose_format(out, None)
    (out.parent / "other.bin").write_text("precious")
    with pytest.raises(RunError, match=r"other\.bin' exists"):
        choose_format(out.parent / "other.xml", None)
    before = {path.name: path.read_bytes() for path in out.parent.iterdir()}
    with pytest.raises(ParityError, match="does not agree with the model"):
        export_model(trained, out, "openvino", generated_images(), tolerance=0.0)
    assert {path.name: path.read_bytes() for path in out.parent.iterdir()} == before


def test_the_command_serves_through_openvino_with_two_workers_and_keys(model: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("# shop\na-key-of-the-shop-0123\n")
    keys.chmod(0o644)
    command = [sys.executable, "-c", "from pmtrans.cli import main; main()", "serve", str(model), "--port", "0"]
    options = ["--backend", "openvino", "--workers", "2", "--api-keys", str(keys)]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.endswith("with 2 workers (Ctrl-C stops)\n")
        address = line.split()[2]
        sent = [("images", encoded(image)) for image in generated_images()]
        with httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
            assert client.get("/ready").json() == {"status": "ready"}
            assert client.post("/predict", files=sent).status_code == 401
            client.headers["X-API-Key"] = "a-key-of-the-shop-0123"
            check(client.post("/predict", files=sent).json()["predictions"], by_hand(model), BOUND["openvino"])
            assert "pmtrans_images_predicted_total 8.0" in client.get("/metrics").text
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (0, "")
    warning, checked = err.splitlines()
    assert warning == f"warning: other users can read the API keys: chmod 600 {keys}."
    assert checked.startswith("Backend openvino, checked on generated patterns")
    assert "same top class on 8 of 8 images" in checked
