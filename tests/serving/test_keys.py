"""API keys: what a file of them may be, and who is answered."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from pmtrans.errors import ConfigError
from pmtrans.inference.predictor import load
from pmtrans.serving.app import create_app
from pmtrans.serving.keys import ApiKeys, read_keys

FIRST, SECOND = "first-key-0123456789", "second-key-0123456789"


def key_file(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    path = folder / "keys.txt"
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.fixture
def keys(tmp_path: Path) -> ApiKeys:
    found, warnings = read_keys(key_file(tmp_path, f"# of the shop\n\n  {FIRST}  \r\n{SECOND}".encode()))
    assert warnings == []
    return found


@pytest.fixture
def client(keys: ApiKeys, saved_model: Callable[..., Path]) -> Iterator[TestClient]:
    with TestClient(create_app(load(saved_model()), keys=keys), raise_server_exceptions=False) as client:
        yield client


def test_a_file_has_a_key_per_line_and_comments(keys: ApiKeys) -> None:
    assert keys.accept(FIRST.encode())
    assert keys.accept(SECOND.encode())
    for wrong in (b"", b"# of the shop", FIRST[:-1].encode(), f"{FIRST}x".encode(), FIRST.upper().encode(), b"\xff"):
        assert not keys.accept(wrong)
    assert FIRST not in repr(keys)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has no key"),
        (b"# nothing yet\n \n", "has no key"),
        (b"fine-key-0123456789\ntwo words\n", "line 2 has a space"),
        ("sch\u00f6n".encode(), "line 1 has a space or a character that is not ASCII"),
        (b"x" * 1_000_001, "more than 1000000 bytes"),
    ],
)
def test_a_file_without_usable_keys_is_one_line_that_repeats_none(content: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        read_keys(key_file(tmp_path, content))
    assert "\n" not in str(caught.value)
    assert "two words" not in str(caught.value)


def test_a_folder_a_pipe_and_a_missing_file_are_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("", "pipe", "missing"):
        with pytest.raises(ConfigError, match="--api-keys"):
            read_keys(tmp_path / name)


def test_keys_that_others_can_read_and_short_keys_are_warned_of(tmp_path: Path) -> None:
    for mode in (0o644, 0o640, 0o604):
        _, (warning,) = read_keys(key_file(tmp_path, FIRST.encode(), mode))
        assert warning == f"other users can read the API keys: chmod 600 {tmp_path / 'keys.txt'}"
    _, (warning,) = read_keys(key_file(tmp_path, b"short"))
    assert "fewer than 16 characters" in warning


def send(client: TestClient, headers: dict[str, str]) -> tuple[int, str]:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "PNG")
    response = client.post("/predict", files={"images": buffer.getvalue()}, headers=headers)
    return response.status_code, response.json().get("detail", "")


def test_predictions_and_metrics_need_a_key(client: TestClient) -> None:
    rights: tuple[dict[str, str], ...] = (
        {"Authorization": f"Bearer {FIRST}"}, {"authorization": f"bearer  {SECOND}"}, {"X-API-Key": SECOND},
        {"X-API-Key": FIRST, "Authorization": "Basic eDp5"},
    )  # fmt: skip
    for right in rights:
        assert send(client, right)[0] == 200
        assert client.get("/metrics", headers=right).status_code == 200
    wrongs = (
        {"Authorization": f"Basic {FIRST}"}, {"Authorization": FIRST}, {"Authorization": "Bearer"},
        {"X-API-Key": ""}, {"X-API-Key": FIRST[:-1]}, {"X-API-Key": f"{FIRST},{SECOND}"}, {"Cookie": f"key={FIRST}"},
    )  # fmt: skip
    for wrong in ({}, *wrongs):
        assert send(client, wrong)[0] == 401
        assert client.get("/metrics", headers=wrong).status_code == 401
    assert send(client, {}) == (401, "an API key is needed: Authorization: Bearer KEY, or X-API-Key: KEY")
    assert send(client, {"X-API-Key": "x"}) == (401, "wrong API key")
    assert client.get("/metrics").headers["www-authenticate"] == "Bearer"
    assert "default-src 'none'" in client.get("/metrics").headers["content-security-policy"]


def test_health_readiness_and_pages_need_none_and_nothing_else_is_open(client: TestClient) -> None:
    for path in ("/health", "/ready", "/", "/docs", "/openapi.json"):
        assert client.get(path).status_code == 200
    assert client.get("/health").json()["needs_key"] is True
    for path in ("/predict/", "/metrics/", "http://testserver//metrics", "/health/../metrics", "/nowhere"):
        assert client.get(path).status_code == 401
