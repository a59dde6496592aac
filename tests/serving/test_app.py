"""The service as its users meet it: answers, refusals, batches, fuzz."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image

from pmtrans.inference.predictor import Predictor, load
from pmtrans.serving.app import create_app
from pmtrans.serving.limits import Limits

LIMITS = Limits(images=3, image_bytes=20_000, form_bytes=0, pixels=10_000, batch_size=8, batching_window=0.05)


def png(seed: int = 0, size: tuple[int, int] = (30, 40)) -> bytes:
    return encoded(np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8))


def encoded(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def predictor(saved_model: Callable[..., Path]) -> Predictor:
    return load(saved_model(temperature=1.5))


@pytest.fixture
def client(predictor: Predictor) -> Iterator[TestClient]:
    with TestClient(create_app(predictor, LIMITS, abstain_below=0.6), raise_server_exceptions=False) as client:
        yield client


def send(client: TestClient, *files: tuple[str, bytes], **query: int | bool) -> Any:
    """A response of httpx or of httpx2, whichever starlette finds."""
    return client.post("/predict", files=[("images", file) for file in files], params=query)


def test_health_names_the_classes(client: TestClient) -> None:
    assert client.get("/health").json()["classes"] == ["ant", "bee", "cat"]


def test_answers_are_those_of_the_predictor_in_the_order_sent(client: TestClient, predictor: Predictor) -> None:
    sent = [png(seed) for seed in range(3)]
    response = send(client, *((f"{seed}.png", data) for seed, data in enumerate(sent)), top=2)
    expected = predictor.predict_images([Image.open(io.BytesIO(data)) for data in sent], abstain_below=0.6)
    assert response.status_code == 200
    answers = response.json()["predictions"]
    assert [answer["name"] for answer in answers] == ["0.png", "1.png", "2.png"]
    for answer, said in zip(answers, expected, strict=True):
        assert answer["class"] == said.label
        assert answer["probability"] == pytest.approx(said.probability, abs=1e-6)
        assert answer["entropy"] == pytest.approx(said.entropy, abs=1e-6)
        assert answer["abstain"] == (said.probability is not None and said.probability < 0.6)
        assert [entry["class"] for entry in answer["top"]] == [name for name, _ in said.top(2)]
        assert "attention" not in answer


def test_an_attention_map_covers_the_part_that_the_model_sees(client: TestClient) -> None:
    (answer,) = send(client, ("x.png", png()), attention=True).json()["predictions"]
    attention = answer["attention"]
    assert (attention["rows"], attention["columns"]) == (2, 2)
    assert sum(attention["values"]) == pytest.approx(1, abs=1e-5)
    left, top, right, bottom = attention["region"]
    assert right - left == bottom - top == pytest.approx(32 / 37)  # 32 px cut from the centre of 37
    assert left == pytest.approx(1 - right)


@pytest.mark.parametrize(
    ("name", "data", "code", "said"),
    [
        ("notes.txt", b"hello", 415, "notes.txt: not an image"),
        ("cut.png", png()[:200], 415, "cut.png: "),
        ("empty.png", b"", 415, "empty file"),
        ("big.png", png(size=(90, 90)), 413, "big.png: "),
        ("many.png", encoded(np.zeros((101, 100, 3), np.uint8)), 415, "more than 10000 pixels"),
        ("bad\nname<b>.txt", b"x", 415, "not an image"),
    ],
)
def test_what_is_no_image_or_too_large_is_one_clear_line(
    client: TestClient, name: str, data: bytes, code: int, said: str
) -> None:
    response = send(client, ("fine.png", png()), (name, data))
    assert response.status_code == code
    assert said in response.json()["detail"]
    assert "\n" not in response.json()["detail"]


def test_too_many_images_and_too_large_requests_are_413(client: TestClient) -> None:
    assert send(client, *(("x.png", png()) for _ in range(4))).status_code == 413
    announced = client.post("/predict", content=b"x" * 60_001, headers={"content-type": "multipart/form-data"})
    assert announced.status_code == 413
    chunks = (b"x" * 10_000 for _ in range(100))
    headers = {"content-type": "multipart/form-data; boundary=b"}
    chunked = client.post("/predict", content=chunks, headers=headers)  # no length is announced
    assert chunked.status_code in (400, 413)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda client: client.post("/predict"),
        lambda client: client.post("/predict", json={"images": []}),
        lambda client: client.post("/predict", data={"images": "text"}),
        lambda client: client.post("/predict", content=b"\xff", headers={"content-type": "multipart/form-data"}),
        lambda client: client.post("/predict?top=0", files=[("images", ("x.png", png()))]),
        lambda client: client.post("/predict?attention=maybe", files=[("images", ("x.png", png()))]),
        lambda client: client.get("/predict"),
        lambda client: client.get("/nowhere"),
    ],
)
def test_wrong_requests_get_a_4xx_with_one_line(client: TestClient, request_of: Callable[[TestClient], Any]) -> None:
    response = request_of(client)
    assert 400 <= response.status_code < 500
    assert isinstance(response.json()["detail"], str)


def test_concurrent_requests_share_passes_and_none_gets_anothers_answer(
    client: TestClient, predictor: Predictor
) -> None:
    sent = [png(seed) for seed in range(40)]
    with ThreadPoolExecutor(20) as threads:
        responses = list(threads.map(lambda data: send(client, ("x.png", data)), sent))
    expected = predictor.predict_images([Image.open(io.BytesIO(data)) for data in sent])
    assert [response.json()["predictions"][0]["class"] for response in responses] == [said.label for said in expected]
    found = [response.json()["predictions"][0]["probability"] for response in responses]
    assert found == pytest.approx([said.probability for said in expected], abs=1e-6)
    assert isinstance(client.app, FastAPI)
    assert client.app.state.batcher.passes < 40


def test_a_failed_pass_is_an_error_of_its_request_and_the_next_one_is_answered(predictor: Predictor) -> None:
    with TestClient(create_app(predictor, LIMITS), raise_server_exceptions=False) as client:
        works = predictor.logits
        predictor.logits = lambda images: works(images[:, :1])  # type: ignore[method-assign]
        assert send(client, ("x.png", png())).status_code == 500
        predictor.logits = works  # type: ignore[method-assign]
        assert send(client, ("x.png", png())).status_code == 200


def test_pages_load_nothing_from_elsewhere_and_say_so_to_the_browser(client: TestClient) -> None:
    for path in ("/", "/docs"):
        response = client.get(path)
        assert response.status_code == 200
        assert "default-src 'none'" in response.headers["content-security-policy"]
        for outside in ("http://", "https://", "//cdn", "@import"):
            assert outside not in response.text


def test_class_names_that_are_not_utf8_are_still_sent(predictor: Predictor) -> None:
    predictor.trained = replace(predictor.trained, classes=(os.fsdecode(b"caf\xe9"), "b", "c"))
    with TestClient(create_app(predictor)) as client:
        assert client.get("/health").json()["classes"][0] == "caf\\udce9"
        assert send(client, ("x.png", png()), top=3).status_code == 200


def test_fuzzed_requests_never_cause_a_server_error(predictor: Predictor) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(predictor, LIMITS))
    codes = set()
    with TestClient(create_app(predictor, LIMITS), raise_server_exceptions=False) as client:
        for operation in schema.get_all_operations():

            @hypothesis.settings(max_examples=10, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
            @hypothesis.given(case=operation.ok().as_strategy())
            def check(case: object) -> None:
                response = case.call(session=client)  # type: ignore[attr-defined]
                codes.add(response.status_code)
                assert response.status_code < 500

            check()
    assert codes & {415, 422}
