"""Readiness and metrics, as an orchestrator and a Prometheus server ask for them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

from pmtrans.inference.predictor import Predictor, load
from pmtrans.serving.app import create_app
from pmtrans.serving.hosts import OwnNames
from pmtrans.serving.metrics import Measured, Metrics


@pytest.fixture
def predictor(saved_model: Callable[..., Path]) -> Predictor:
    return load(saved_model())


@pytest.fixture
def client(predictor: Predictor) -> Iterator[TestClient]:
    metrics = Metrics()
    app = Measured(OwnNames(create_app(predictor, metrics=metrics), ["testserver"]), metrics)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def send(client: TestClient, *contents: bytes, **headers: str) -> Any:
    return client.post("/predict", files=[("images", ("x.png", data)) for data in contents], headers=headers)


def image() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (20, 20)).save(buffer, "PNG")
    return buffer.getvalue()


def samples(client: TestClient) -> dict[tuple[str, ...], float]:
    """``(name, label values ...)`` and the value of each sample, in the order of the labels' names."""
    response = client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = text_string_to_metric_families(response.text)
    found = [sample for family in families for sample in family.samples]
    return {(sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value for sample in found}


def test_ready_means_that_the_model_predicts_and_it_is_tried_again(client: TestClient, predictor: Predictor) -> None:
    works = predictor.logits
    predictor.logits = lambda images: works(images[:, :1])  # type: ignore[method-assign]
    assert client.get("/ready").status_code == 503  # no prediction was made yet, and none can be
    assert client.get("/health").status_code == 200
    predictor.logits = works  # type: ignore[method-assign]
    assert client.get("/ready").json() == {"status": "ready"}
    predictor.logits = lambda images: works(images[:, :1])  # type: ignore[method-assign]
    assert client.get("/ready").status_code == 200  # nobody has met the failure yet
    assert send(client, image()).status_code == 500
    response = client.get("/ready")
    assert (response.status_code, response.json()) == (503, {"detail": "the model cannot predict now"})
    predictor.logits = works  # type: ignore[method-assign]
    assert client.get("/ready").status_code == 200


def test_requests_are_counted_by_path_and_status_and_images_when_they_are_predicted(client: TestClient) -> None:
    assert send(client, image(), image(), image()).status_code == 200
    assert send(client, image()).status_code == 200
    assert send(client, image(), b"text").status_code == 415
    assert send(client, image(), host="evil.example").status_code == 403
    for path in ("/nowhere", "/else", "/health", "/health"):
        client.get(path)
    found = samples(client)
    counted = {name[1:]: value for name, value in found.items() if name[0] == "pmtrans_requests_total"}
    assert counted == {
        ("/predict", "200"): 2, ("/predict", "415"): 1, ("/predict", "403"): 1, ("other", "404"): 2,
        ("/health", "200"): 2,
    }  # fmt: skip
    assert found["pmtrans_images_predicted_total",] == 4
    assert found["pmtrans_images_in_work",] == 0
    assert found["pmtrans_request_seconds_count", "/predict"] == 4
    assert found["pmtrans_request_seconds_bucket", "+Inf", "/predict"] == 4
    assert 0 < found["pmtrans_request_seconds_sum", "/predict"] < 60


def test_images_in_work_are_those_of_requests_that_are_not_answered(client: TestClient, predictor: Predictor) -> None:
    works, during = predictor.logits, []

    def looked_at(images: Any) -> Any:
        during.append(samples(client)["pmtrans_images_in_work",])
        return works(images)

    predictor.logits = looked_at  # type: ignore[method-assign]
    assert send(client, image(), image()).status_code == 200
    assert during == [2]
    assert samples(client)["pmtrans_images_in_work",] == 0
