"""Requests that fit the server's own description, that break it, and that it says nothing of: no server error."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from fuzzing import examples
from pmtrans.inference.predictor import Predictor, load
from pmtrans.serving.app import create_app
from pmtrans.serving.limits import Limits

LIMITS = Limits(images=3, image_bytes=20_000, form_bytes=0, pixels=10_000, batch_size=8, batching_window=0.0)
QUIET: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "derandomize": True,
    "suppress_health_check": list(HealthCheck),
}


@pytest.fixture
def predictor(saved_model: Callable[..., Path]) -> Predictor:
    return load(saved_model())


@pytest.fixture
def client(predictor: Predictor) -> Iterator[TestClient]:
    with TestClient(create_app(predictor, LIMITS), raise_server_exceptions=False) as client:
        yield client


def refuse_server_error(response: Any) -> None:
    assert response.status_code < 500 or response.status_code == 503, (response.status_code, response.text[:300])
    assert "Traceback" not in response.text
    if response.status_code == 422:
        assert isinstance(json.loads(response.text)["detail"], str)


def test_every_described_operation_refuses_what_breaks_its_description(
    client: TestClient, predictor: Predictor
) -> None:
    """Requests that fit it are in tests/serving/test_app.py."""
    schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(predictor, LIMITS))
    broken: Counter[str] = Counter()
    operations: Any = schema.get_all_operations()
    for found in operations:

        @settings(max_examples=examples(20), **QUIET)
        @given(case=found.ok().as_strategy(generation_mode=GenerationMode.NEGATIVE))
        def check(case: Any) -> None:
            refuse_server_error(case.call(session=client))
            broken[case.path] += 1

        with contextlib.suppress(Unsatisfiable):  # nothing is described that could be broken
            check()
    assert broken["/predict"] >= 10


def _paths(client: TestClient) -> list[str]:
    return sorted({route.path for route in client.app.routes})  # type: ignore[attr-defined]


words = st.text(st.characters(codec="utf-8"), max_size=20)
ascii_words = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30)
headers = st.dictionaries(
    st.sampled_from(["content-type", "content-length", "accept", "range", "origin", "cookie", "x-forwarded-host",
                     "authorization", "if-none-match", "transfer-encoding", "content-encoding", "expect"]),
    ascii_words | st.sampled_from(["multipart/form-data; boundary=b", "multipart/form-data", "application/json", "0",
                                   "-1", "bytes=9-1", "gzip", "chunked"]),
    max_size=4,
)  # fmt: skip
bodies = st.binary(max_size=200) | st.sampled_from(
    [b"--b\r\nContent-Disposition: form-data; name=\"images\"; filename=\"a\0.png\"\r\n\r\n\xff\r\n--b--\r\n",
     b"--b\r\n", b"--b--", b"--b\r\nContent-Disposition: form-data\r\n\r\n\r\n--b--\r\n", b"{" * 500, b"null"]
)  # fmt: skip


@settings(max_examples=examples(100), **QUIET)
@given(data=st.data())
def test_every_route_answers_any_method_query_header_and_body(client: TestClient, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([*_paths(client), "/none", "/predict/", "//", "/../etc/passwd", "/%00"]))
    method = data.draw(st.sampled_from(["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"]))
    query = data.draw(st.dictionaries(words | st.sampled_from(["top", "probabilities"]), words, max_size=3))
    answer = client.request(method, path, params=query, headers=data.draw(headers), content=data.draw(bodies))
    refuse_server_error(answer)
